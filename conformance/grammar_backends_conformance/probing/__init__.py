"""Support data by measurement: probes, what an engine makes of them, and the table that follows (C2.5, C3).

`probes` and its neighbours say what is asked, `derivation` what follows from the answers, `run` asks, and `command` is
``gb probe``. An engine is asked without the judgement of its table, so that the table is no part of its own proof.
"""
