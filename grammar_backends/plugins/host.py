"""Finds plugins and keeps what they registered, so that no broken plugin takes anything else down.

Every entry point is loaded under guard and leaves a record: loaded, blocked, failed or incompatible, each with its
reason. A broken backend is skipped by the automatic choice and re-raises its own error when it is named.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import logging
import os
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import pluggy

from grammar_backends.contract import API_VERSION, BackendSpec, Engine, GrammarSpec, Vocabulary
from grammar_backends.errors import BackendUnavailable, GrammarBackendsError, PluginError, shown
from grammar_backends.plugins import hookspecs
from grammar_backends.plugins.hookspecs import PROJECT, CommandSpec, TokenizerSpec

__all__ = ["BackendRecord", "PluginHost", "PluginRecord", "default_host", "did_you_mean"]

logger = logging.getLogger(__name__)

State = Literal["loaded", "blocked", "failed", "incompatible"]
Registered = TypeVar("Registered", BackendSpec, TokenizerSpec, CommandSpec)

SHIPPED = frozenset(
    f"grammar-backends-{name}" for name in ("conformance", "guidance", "lm-format-enforcer", "outlines", "xgrammar")
)
"""Distributions of this project load first, so that nobody can take a shipped backend's name."""


@dataclass(frozen=True, slots=True)
class PluginRecord:
    """What became of one entry point.

    Attributes:
        name: the entry point's name.
        distribution, version: where it comes from.
        state: loaded, blocked (by the environment or the caller) or failed.
        reason: one line, for every state but loaded.
        error: what it raised.
    """

    name: str
    distribution: str
    version: str
    state: State
    reason: str = ""
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class BackendRecord:
    """What became of one registered backend.

    Attributes:
        spec: what the plugin registered.
        plugin: name of the plugin that registered it.
        state: loaded (usable as far as is known), failed (its name is taken) or incompatible (another API version).
        reason: one line, for every state but loaded.
    """

    spec: BackendSpec
    plugin: str
    state: State
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Source:
    name: str
    distribution: str
    version: str
    load: Callable[[], object] = field(repr=False)


class PluginHost:
    """The plugins of one engine. An object to pass around; there is no global one.

    Args:
        autoload: load entry points; None follows ``GRAMMAR_BACKENDS_AUTOLOAD`` (0 switches it off).
        block: plugin or backend names to leave out, besides those in ``GRAMMAR_BACKENDS_BLOCK``.
        plugins: further plugin objects or modules, by name.
    """

    def __init__(
        self,
        *,
        autoload: bool | None = None,
        block: Collection[str] = (),
        plugins: Mapping[str, object] | None = None,
    ) -> None:
        if autoload is None:
            autoload = os.environ.get("GRAMMAR_BACKENDS_AUTOLOAD", "1") != "0"
        named = os.environ.get("GRAMMAR_BACKENDS_BLOCK", "").split(",")
        self._block = {name.strip() for name in [*named, *block] if name.strip()}
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self._plugins: list[PluginRecord] = []
        self._backends: list[BackendRecord] = []
        self._by_name: dict[str, BackendRecord] = {}
        self._tokenizers: dict[str, TokenizerSpec] = {}
        self._commands: dict[str, CommandSpec] = {}
        sources = _entry_points() if autoload else []
        given = [_Source(name, "", "", lambda plugin=plugin: plugin) for name, plugin in (plugins or {}).items()]  # type: ignore[misc]  # default binds the loop variable
        for source in [*sources, *given]:
            self._plugins.append(self._load(source))

    @property
    def plugins(self) -> tuple[PluginRecord, ...]:
        """Every plugin that was found, in loading order."""
        return tuple(self._plugins)

    @property
    def backends(self) -> tuple[BackendRecord, ...]:
        """Every backend that was registered, usable or not: by priority, then name."""
        last = float("inf")
        key = lambda r: (last if r.spec.priority is None else r.spec.priority, r.spec.name, r.state != "loaded")  # noqa: E731  # a sort key
        return tuple(sorted(self._backends, key=key))

    @property
    def tokenizers(self) -> Mapping[str, TokenizerSpec]:
        """Vocabularies that can be asked for by name."""
        return dict(self._tokenizers)

    @property
    def commands(self) -> Mapping[str, CommandSpec]:
        """Commands that plugins add."""
        return dict(self._commands)

    def backend(self, name: str) -> BackendSpec:
        """A usable backend by name.

        Raises:
            BackendUnavailable: unknown (with the nearest names), blocked, failed or incompatible (with the reason,
                and the plugin's own error as its cause).
        """
        record = self._by_name.get(name) if isinstance(name, str) else None
        if record is not None and record.state == "loaded":
            return record.spec
        if record is not None:
            raise BackendUnavailable(f"backend {name} is {record.state}: {record.reason}")
        for plugin in self._plugins:
            if plugin.name == name and plugin.state != "loaded":
                raise BackendUnavailable(f"plugin {name} is {plugin.state}: {plugin.reason}") from plugin.error
        known = [record.spec.name for record in self.backends if record.state == "loaded"]
        hint = f"Installed backends: {', '.join(known) or 'none'}"
        meant = did_you_mean(str(name)[:50], known)
        raise BackendUnavailable(f"there is no backend {shown(name)}{meant}", hint=hint)

    def create_engine(self, name: str, vocabulary: Vocabulary, options: Mapping[str, Any] | None = None) -> Engine:
        """Import a backend's factory and call it.

        Raises:
            BackendUnavailable: as `backend`, or it has no such option, or its factory could not be imported or failed
                (whose error is the cause).
            VocabularyError: the engine cannot work with this vocabulary.
        """
        spec = self.backend(name)
        _check_options(spec, options or {})
        try:
            factory = load_attribute(spec.factory)
        except BaseException as error:
            _let_interrupt_pass(error)
            raise BackendUnavailable(
                f"backend {name} cannot be imported: {type(error).__name__}: {error}",
                hint=f"Reinstall {spec.distribution or spec.factory.partition(':')[0]}",
            ) from error
        try:
            engine = factory(vocabulary, dict(options or {}))
        except GrammarBackendsError:
            raise
        except BaseException as error:
            _let_interrupt_pass(error)
            raise BackendUnavailable(f"backend {name} cannot start: {type(error).__name__}: {error}") from error
        if not isinstance(engine, Engine):
            raise BackendUnavailable(f"backend {name} cannot start: its factory returned {type(engine).__name__}")
        return engine

    def order_chain(self, request: GrammarSpec, candidates: Sequence[str]) -> list[str]:
        """`candidates` in the order that a plugin asks for, or unchanged (`grammar_backends_order_chain`).

        A plugin that raises has no say, which is logged.
        """
        try:
            answer = self._manager.hook.grammar_backends_order_chain(request=request, candidates=tuple(candidates))
            return list(candidates if answer is None else dict.fromkeys(name for name in answer if name in candidates))
        except Exception:
            logger.warning("a plugin's grammar_backends_order_chain failed; the order stays as it is", exc_info=True)
            return list(candidates)

    def _load(self, source: _Source) -> PluginRecord:
        record = PluginRecord(source.name, source.distribution, source.version, "loaded")
        if source.name in self._block or source.distribution in self._block:
            return _changed(record, "blocked", "blocked by configuration")
        if self._manager.has_plugin(source.name):
            return _changed(record, "failed", "another plugin of this name is loaded")
        try:
            plugin = source.load()
            self._manager.register(plugin, name=source.name)
            others = [other for other in self._manager.get_plugins() if other is not plugin]
            backends = self._collect(others, "grammar_backends_register_backends", BackendSpec)
            tokenizers = self._collect(others, "grammar_backends_register_tokenizers", TokenizerSpec)
            commands = self._collect(others, "grammar_backends_register_commands", CommandSpec)
        except BaseException as error:
            _let_interrupt_pass(error)
            self._unregister(source.name)
            return _changed(record, "failed", _one_line(error), error)
        for spec in backends:
            self._add_backend(source, spec)
        self._tokenizers = {**{spec.name: spec for spec in tokenizers}, **self._tokenizers}
        self._commands = {**{spec.name: spec for spec in commands}, **self._commands}
        return record

    def _unregister(self, name: str) -> None:
        if self._manager.has_plugin(name):
            self._manager.unregister(name=name)

    def _collect(self, others: Iterable[object], hook: str, kind: type[Registered]) -> list[Registered]:
        caller = self._manager.subset_hook_caller(hook, remove_plugins=others)
        found = [spec for answer in caller() for spec in answer]
        for spec in found:
            if not isinstance(spec, kind):
                raise PluginError(f"{hook} returned {type(spec).__name__}, not {kind.__name__}")
        return found

    def _add_backend(self, source: _Source, spec: BackendSpec) -> None:
        state, reason = self._judge(source, spec)
        record = BackendRecord(spec, source.name, state, reason)
        self._backends.append(record)
        self._by_name.setdefault(spec.name, record)

    def _judge(self, source: _Source, spec: BackendSpec) -> tuple[State, str]:
        if spec.name in self._block:
            return "blocked", "blocked by configuration"
        if spec.api_version != API_VERSION:
            return "incompatible", f"made for plugin API {spec.api_version}, this is {API_VERSION}"
        taken = self._by_name.get(spec.name)
        if taken is not None:
            first = taken.spec.distribution or taken.plugin
            return "failed", f"{source.distribution or source.name} registers a name that {first} has registered"
        return "loaded", ""


def default_host() -> PluginHost:
    """A host with every installed plugin."""
    return PluginHost()


def load_attribute(path: str) -> Any:
    """The object that ``"package.module:attribute"`` names."""
    module, _, attribute = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found


def _check_options(spec: BackendSpec, options: Mapping[str, Any]) -> None:
    known = spec.capabilities.options
    for name in options:
        if known is not None and name not in known:
            raise BackendUnavailable(
                f"backend {spec.name} has no option {name!r}{did_you_mean(name, known)}",
                hint=f"Its options: {', '.join(sorted(known)) or 'none'}",
            )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``", did you mean 'x'?"`` or nothing."""
    close = difflib.get_close_matches(name.lower(), list(known), n=1)
    return f", did you mean {close[0]!r}?" if close else ""


def _entry_points() -> list[_Source]:
    found = []
    for point in importlib.metadata.entry_points(group=PROJECT):
        distribution = point.dist.name if point.dist else ""
        version = point.dist.version if point.dist else ""
        found.append(_Source(point.name, distribution, version, point.load))
    return sorted(found, key=lambda s: (s.distribution not in SHIPPED, s.distribution, s.name))


def _changed(record: PluginRecord, state: State, reason: str, error: BaseException | None = None) -> PluginRecord:
    return PluginRecord(record.name, record.distribution, record.version, state, reason, error)


def _let_interrupt_pass(error: BaseException) -> None:
    """Of all that a plugin's code may raise (an extension's panic is no Exception), this alone is not its own."""
    if isinstance(error, KeyboardInterrupt):
        raise error


def _one_line(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].strip()
