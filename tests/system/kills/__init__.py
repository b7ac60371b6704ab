"""SIGKILLs and failures at every named point, of one stream (`make check-kill`) and of all (`make check-jobs`)."""
