"""What tests of the choice share: the installed backends, and a small vocabulary."""

from __future__ import annotations

import pytest

from grammar_backends import PluginHost, Vocabulary, default_host, load_vocabulary


@pytest.fixture(scope="module")
def host() -> PluginHost:
    return default_host()


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return load_vocabulary("byte")
