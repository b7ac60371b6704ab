/** A case that SPEC does not allow. An error, so that it is never taken for a rejected topology or a failed record. */
final class BadCase extends Error {

    private static final long serialVersionUID = 1;

    BadCase(String what) {
        super(what);
    }
}
