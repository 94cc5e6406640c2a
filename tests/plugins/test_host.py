"""The plugin host: what it finds, what it keeps of it, and what broken plugins cannot do to the others."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from grammar_backends import load_vocabulary
from grammar_backends.contract import API_VERSION, BackendSpec, Capabilities, GrammarKind, GrammarSpec
from grammar_backends.errors import BackendUnavailable, PluginError, VocabularyError
from grammar_backends.plugins import CommandSpec, PluginHost, TokenizerSpec, default_host, hookimpl

SHIPPED = ["xgrammar", "guidance", "outlines"]


def spec(name: str, *, factory: str = "json:loads", api_version: int = API_VERSION, **more: Any) -> BackendSpec:
    return BackendSpec(name, factory, api_version, Capabilities(kinds=frozenset({GrammarKind.REGEX})), **more)


class Plugin:
    """Registers the given things."""

    def __init__(
        self,
        *backends: object,
        tokenizers: Sequence[TokenizerSpec] = (),
        commands: Sequence[CommandSpec] = (),
    ) -> None:
        self.backends, self.tokenizers, self.commands = backends, tokenizers, commands

    @hookimpl
    def grammar_backends_register_backends(self) -> Iterable[object]:
        return self.backends

    @hookimpl
    def grammar_backends_register_tokenizers(self) -> Iterable[TokenizerSpec]:
        return self.tokenizers

    @hookimpl
    def grammar_backends_register_commands(self) -> Iterable[CommandSpec]:
        return self.commands


class Raising:
    """A plugin whose hook raises."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    @hookimpl
    def grammar_backends_register_backends(self) -> Iterable[BackendSpec]:
        raise self.error


class Chain:
    """A plugin that orders the chain."""

    def __init__(self, order: Callable[[GrammarSpec, Sequence[str]], Sequence[str] | None]) -> None:
        self.order = order

    @hookimpl
    def grammar_backends_order_chain(self, request: GrammarSpec, candidates: Sequence[str]) -> Sequence[str] | None:
        return self.order(request, candidates)


def host_of(**plugins: object) -> PluginHost:
    return PluginHost(autoload=False, plugins=plugins)


def usable(host: PluginHost) -> list[str]:
    return [record.spec.name for record in host.backends if record.state == "loaded"]


def states(host: PluginHost) -> dict[str, str]:
    return {record.name: record.state for record in host.plugins}


def test_the_shipped_plugins_load_in_the_order_of_the_chain() -> None:
    host = default_host()
    assert [name for name in usable(host) if name in SHIPPED] == SHIPPED
    for record in host.plugins:
        if record.name in SHIPPED:
            assert (record.state, record.reason, record.error) == ("loaded", "", None)
            assert record.distribution == f"grammar-backends-{record.name}"
            assert record.version


def test_autoload_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PluginHost(autoload=False).plugins == ()
    monkeypatch.setenv("GRAMMAR_BACKENDS_AUTOLOAD", "0")
    assert default_host().plugins == ()
    assert usable(PluginHost(plugins={"mine": Plugin(spec("mine"))})) == ["mine"]
    assert set(SHIPPED) <= set(usable(PluginHost(autoload=True)))


@pytest.mark.parametrize("where", ["environment", "argument"])
@pytest.mark.parametrize("named", ["outlines", "grammar-backends-outlines"])
def test_a_blocked_plugin_is_recorded_and_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, where: str, named: str
) -> None:
    if where == "environment":
        monkeypatch.setenv("GRAMMAR_BACKENDS_BLOCK", f" {named} , ,nobody")
    host = PluginHost(block=[named] if where == "argument" else ())
    assert states(host)["outlines"] == "blocked"
    assert "outlines" not in usable(host)
    assert "xgrammar" in usable(host)
    with pytest.raises(BackendUnavailable, match="plugin outlines is blocked: blocked by configuration"):
        host.backend("outlines")


def test_one_backend_of_a_plugin_can_be_blocked() -> None:
    host = PluginHost(autoload=False, block=["one"], plugins={"both": Plugin(spec("one"), spec("two"))})
    assert usable(host) == ["two"]
    with pytest.raises(BackendUnavailable, match="backend one is blocked"):
        host.backend("one")


@pytest.mark.parametrize(
    "error",
    [RuntimeError("no luck"), SystemExit(3), BaseException("an extension's panic")],
    ids=["exception", "exit", "panic"],
)
def test_a_plugin_that_raises_is_recorded_and_takes_nothing_down(error: BaseException) -> None:
    host = host_of(good=Plugin(spec("good")), bad=Raising(error), late=Plugin(spec("late")))
    assert states(host) == {"good": "loaded", "bad": "failed", "late": "loaded"}
    assert usable(host) == ["good", "late"]
    record = next(record for record in host.plugins if record.name == "bad")
    assert record.error is error
    assert type(error).__name__ in record.reason
    with pytest.raises(BackendUnavailable, match="plugin bad is failed") as caught:
        host.backend("bad")
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("answer", [["a string"], [None], [TokenizerSpec("t", "m:f")]])
def test_a_plugin_that_registers_something_else_fails_alone(answer: list[object]) -> None:
    host = host_of(bad=Plugin(*answer), good=Plugin(spec("good")))
    assert states(host) == {"bad": "failed", "good": "loaded"}
    assert isinstance(host.plugins[0].error, PluginError)


def test_a_plugin_with_a_wrong_hook_signature_fails_alone() -> None:
    module = types.ModuleType("wrong")
    exec("def grammar_backends_order_chain(request, candidates, more): ...", module.__dict__)
    hookimpl(module.grammar_backends_order_chain)
    host = host_of(wrong=module, good=Plugin(spec("good")))
    assert states(host) == {"wrong": "failed", "good": "loaded"}
    assert host.order_chain(GrammarSpec.regex("a"), ["x"]) == ["x"]


def test_a_name_registered_twice_fails_for_the_second_and_names_both() -> None:
    mine = spec("same", distribution="mine")
    host = host_of(first=Plugin(mine), second=Plugin(spec("same"), spec("other")))
    assert host.backend("same") is mine
    assert usable(host) == ["other", "same"]
    (clash,) = [record for record in host.backends if record.state == "failed"]
    assert clash.plugin == "second"
    assert "second" in clash.reason
    assert "mine" in clash.reason


def test_nobody_takes_a_shipped_backends_name() -> None:
    host = PluginHost(plugins={"impostor": Plugin(spec("xgrammar"))})
    assert host.backend("xgrammar").distribution == "grammar-backends-xgrammar"


def test_two_plugins_of_one_name_leave_the_first_alone() -> None:
    first = Chain(lambda request, candidates: ["b"])
    host = PluginHost(autoload=False, plugins={"twice": first})
    source = next(iter(host.plugins))
    assert source.state == "loaded"
    host._plugins.append(host._load(_source("twice", Plugin(spec("late")))))
    assert [record.state for record in host.plugins] == ["loaded", "failed"]
    assert host.order_chain(GrammarSpec.regex("a"), ["a", "b"]) == ["b"]
    assert usable(host) == []


def _source(name: str, plugin: object) -> Any:
    from grammar_backends.plugins import host

    return host._Source(name, "another-distribution", "1", lambda: plugin)


def test_another_api_version_is_incompatible_and_says_which() -> None:
    host = host_of(old=Plugin(spec("old", api_version=API_VERSION + 1), spec("new")))
    assert usable(host) == ["new"]
    with pytest.raises(BackendUnavailable, match=f"incompatible: made for plugin API {API_VERSION + 1}"):
        host.backend("old")


def test_an_unknown_name_is_answered_with_the_nearest_and_all_there_are() -> None:
    host = host_of(p=Plugin(spec("xgrammar"), spec("outlines"), spec("old", api_version=99)))
    for wrong in ("xgramar", "XGrammar"):
        with pytest.raises(BackendUnavailable, match="did you mean 'xgrammar'") as caught:
            host.backend(wrong)
        assert "Installed backends: outlines, xgrammar" in str(caught.value)
    with pytest.raises(BackendUnavailable, match="there is no backend 'zzz'") as caught:
        host.backend("zzz")
    assert "did you mean" not in str(caught.value)
    with pytest.raises(BackendUnavailable, match="Installed backends: none"):
        host_of().backend("zzz")


def test_backends_are_listed_by_priority_and_those_without_one_last() -> None:
    host = host_of(p=Plugin(spec("c"), spec("b", priority=2), spec("a", priority=10), spec("d", priority=2)))
    assert [record.spec.name for record in host.backends] == ["b", "d", "a", "c"]


def test_tokenizers_and_commands_are_collected_and_the_first_of_a_name_stays() -> None:
    mine, yours = TokenizerSpec("t", "mine:t"), TokenizerSpec("t", "yours:t")
    commands = [CommandSpec("c", "mine:c")]
    host = host_of(first=Plugin(tokenizers=[mine], commands=commands), second=Plugin(tokenizers=[yours]))
    assert host.tokenizers == {"t": mine}
    assert host.commands == {"c": commands[0]}


CANDIDATES = ("xgrammar", "guidance", "outlines")


def test_order_chain_is_unchanged_without_an_answer() -> None:
    assert host_of().order_chain(GrammarSpec.regex("a"), CANDIDATES) == list(CANDIDATES)
    host = host_of(silent=Chain(lambda request, candidates: None), other=Plugin(spec("x")))
    assert host.order_chain(GrammarSpec.regex("a"), CANDIDATES) == list(CANDIDATES)


def test_order_chain_takes_the_answer_without_unknown_names_and_repetitions() -> None:
    host = host_of(chain=Chain(lambda request, candidates: ["outlines", "nobody", "xgrammar", "outlines"]))
    assert host.order_chain(GrammarSpec.regex("a"), CANDIDATES) == ["outlines", "xgrammar"]
    assert host_of(none=Chain(lambda request, candidates: [])).order_chain(GrammarSpec.regex("a"), CANDIDATES) == []


def test_order_chain_sees_the_request() -> None:
    def order(request: GrammarSpec, candidates: Sequence[str]) -> Sequence[str] | None:
        return candidates[::-1] if request.kind is GrammarKind.CHOICE else None

    host = host_of(chain=Chain(order))
    assert host.order_chain(GrammarSpec.choice(["a"]), CANDIDATES) == list(CANDIDATES[::-1])
    assert host.order_chain(GrammarSpec.regex("a"), CANDIDATES) == list(CANDIDATES)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("no_such_module_at_all:make", "cannot be imported: ModuleNotFoundError"),
        ("json:no_such_name", "cannot be imported: AttributeError"),
        ("json:loads", "cannot start: TypeError"),
    ],
)
def test_a_factory_that_fails_makes_its_backend_unavailable(factory: str, message: str) -> None:
    host = host_of(p=Plugin(spec("broken", factory=factory, distribution="broken-dist")))
    with pytest.raises(BackendUnavailable, match=message) as caught:
        host.create_engine("broken", load_vocabulary("byte"))
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("error", [SystemExit(3), BaseException("an extension's panic")], ids=["exit", "panic"])
def test_a_factory_that_panics_makes_its_backend_unavailable(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(vocabulary: object, options: object) -> None:
        raise error

    monkeypatch.setitem(sys.modules, "panicking", types.SimpleNamespace(make=make))
    host = host_of(p=Plugin(spec("broken", factory="panicking:make")))
    with pytest.raises(BackendUnavailable, match="cannot start") as caught:
        host.create_engine("broken", load_vocabulary("byte"))
    assert caught.value.__cause__ is error


def test_an_interrupt_inside_a_plugin_is_the_users_not_the_plugins() -> None:
    with pytest.raises(KeyboardInterrupt):
        host_of(slow=Raising(KeyboardInterrupt()))


def refuse(vocabulary: object, options: dict[str, Any]) -> None:
    raise VocabularyError(f"not this one {options}")


def test_a_factory_gets_the_options_and_its_own_error_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("factory_for_this_test")
    module.refuse = refuse  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    host = host_of(p=Plugin(spec("picky", factory="factory_for_this_test:refuse")))
    with pytest.raises(VocabularyError, match=r"\{'a': 1\}"):
        host.create_engine("picky", load_vocabulary("byte"), {"a": 1})


@pytest.mark.parametrize("name", ["", "Upper", "two words", "a.b", "-a", "a--b"])
def test_a_bad_backend_name_is_a_plugin_error(name: str) -> None:
    with pytest.raises(PluginError, match="name"):
        spec(name)


@pytest.mark.parametrize("factory", ["module", "module:", ":name", "a b:c"])
def test_a_bad_factory_is_a_plugin_error(factory: str) -> None:
    with pytest.raises(PluginError, match="factory"):
        spec("name", factory=factory)


SCRIPT = """
from grammar_backends.errors import BackendUnavailable
from grammar_backends.plugins import default_host
host = default_host()
states = {record.name: (record.state, record.distribution, record.version) for record in host.plugins}
assert states["broken"] == ("failed", "broken-plugin", "7.0"), states
assert states["leaving"][0] == "failed", states
assert states["working"] == ("loaded", "working-plugin", "7.0"), states
assert {"xgrammar", "guidance", "outlines", "mine"} <= {r.spec.name for r in host.backends if r.state == "loaded"}
try:
    host.backend("broken")
except BackendUnavailable as error:
    assert isinstance(error.__cause__, ZeroDivisionError), error.__cause__
    assert "ZeroDivisionError: division by zero" in str(error), error
else:
    raise SystemExit("not refused")
assert host.backend("mine").name == "mine"
import sys
engines = {"xgrammar", "llguidance", "outlines_core", "torch"} & set(sys.modules)
assert not engines, engines
"""

WORKING = """
from grammar_backends.contract import API_VERSION, BackendSpec, Capabilities
from grammar_backends.plugins import hookimpl

@hookimpl
def grammar_backends_register_backends():
    return [BackendSpec("mine", "working_plugin:make", API_VERSION, Capabilities(kinds=frozenset()))]
"""


def install(folder: Path, name: str, code: str) -> None:
    module = f"{name}_plugin"
    (folder / f"{module}.py").write_text(code)
    info = folder / f"{module}-7.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-plugin\nVersion: 7.0\n")
    (info / "entry_points.txt").write_text(f"[grammar_backends]\n{name} = {module}\n")


def test_an_installed_plugin_that_cannot_be_imported_takes_nothing_down_and_no_engine_is_imported(
    tmp_path: Path,
) -> None:
    install(tmp_path, "broken", "1 / 0")
    install(tmp_path, "leaving", "import sys; sys.exit('goodbye')")
    install(tmp_path, "working", WORKING)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRAMMAR_BACKENDS_")}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
