"""Runs that were accepted, kept in a folder: what `rlinsight check` compares with."""
