"""The result of `rlinsight check`, for people and for each kind of CI."""
