# `deltaworks compose` has written this file: the image in which Airflow, the supervisor and the streams run.
# It installs deltaworks from its wheel, and what that needs in the versions that it was tested with. What your pipelines
# need besides is a line of your own, after those of deltaworks.
FROM apache/airflow:3.3.2-python3.11
USER 0
# The base image decides which version of Debian it is, and so which Java 17.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/* \
 && install -d -o airflow -g 0 /opt/deltaworks /opt/deltaworks/home
# The user `airflow`: as a number, it is known not to be root.
USER 50000
WORKDIR /opt/deltaworks
COPY --chown=50000:0 dist/deltaworks-0.1.0-py3-none-any.whl dist/deltaworks-0.1.0-py3-none-any.whl
# Settings of pip, such as the index of your company: docker build --secret id=pip,src=pip.conf
RUN --mount=type=secret,id=pip,target=/etc/pip.conf,mode=0444 \
    pip install --no-cache-dir --no-deps --only-binary :all: ./dist/deltaworks-0.1.0-py3-none-any.whl \
 && locks="$(python -c 'import deltaworks; print(*deltaworks.__path__)')/_infra" \
 && pip install --no-cache-dir --require-hashes -r "$locks/build-constraints.txt" \
 && pip install --no-cache-dir --require-hashes --no-build-isolation -r "$locks/runtime-constraints.txt"
ENV DELTAWORKS_PROJECT=/opt/deltaworks
# The pipelines and their settings; .dockerignore says what else is there.
COPY --chown=50000:0 . .
