"""Cases to run, from files of ours and of other people.

`reading` says what a case is and reads them, `foreign` knows the other formats.
"""
