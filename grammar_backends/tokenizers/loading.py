"""Finds a vocabulary by name: built in, a file, a plugin's, or a model on the Hugging Face hub.

`load_vocabulary` tries these in that order and raises `VocabularyError` for everything that goes wrong. The formats
themselves are read by the other modules here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grammar_backends.contract.vocabulary import Vocabulary
from grammar_backends.errors import VocabularyError, trim
from grammar_backends.tokenizers.huggingface import read_huggingface
from grammar_backends.tokenizers.mistral import packaged_tekken, read_tekken_file
from grammar_backends.tokenizers.raw_bytes import byte_vocabulary

if TYPE_CHECKING:
    from grammar_backends.plugins.host import PluginHost

__all__ = ["BUILT_IN", "load_vocabulary"]


def _tekken(*, width: int | None = None) -> Vocabulary:
    return read_tekken_file(packaged_tekken(), width=width, name="tekken")


BUILT_IN: dict[str, Callable[..., Vocabulary]] = {"byte": byte_vocabulary, "tekken": _tekken}
"""Vocabularies that need no plugin and no download, by name."""

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)

REFUSED = {
    ".gguf": "a GGUF file",
    ".tiktoken": "a tiktoken file",
    ".model": "a SentencePiece file",
    ".spm": "a SentencePiece file",
}
"""Formats that are known and not read yet, by the ending of their files."""

ACCEPTED = (
    "Also taken: a tokenizer.json or a directory that holds one, a tekken*.json, and a hub id (org/name) when "
    "transformers is installed"
)


def load_vocabulary(
    name: str | os.PathLike[str], *, width: int | None = None, host: PluginHost | None = None
) -> Vocabulary:
    """The vocabulary that `name` stands for.

    Pseudo-code::

        a built-in name ("byte", "tekken")        -> that (write ./byte for a file called so)
        an existing file or directory             -> read it, with the model's configuration beside it
        a name that a plugin has registered       -> ask the plugin
        org/name, and transformers is installed   -> AutoTokenizer.from_pretrained(name)

    Args:
        name: as above.
        width: ids that a row covers. When absent: the `vocab_size` in the model's `config.json` if there is one and
            it is larger, else the number of tokens (B6).
        host: whose plugins are asked; None asks every installed plugin, once nothing else has fitted.

    Raises:
        VocabularyError: unknown (with the nearest names and what is accepted), unreadable (with the file and the
            reason), of a kind that is not supported, or in need of a package that is not installed.
    """
    if not isinstance(name, (str, os.PathLike)):
        raise VocabularyError(f"a vocabulary is named by a string or a path, not by {type(name).__name__}")
    if isinstance(name, str) and name in BUILT_IN:
        return BUILT_IN[name](width=width)
    path = Path(os.fsdecode(name))
    if _exists(path):
        return _read_path(path, width)
    if not isinstance(name, str):
        raise VocabularyError(f"there is no file or directory {path}")
    host = host or _default_host()
    if name in host.tokenizers:
        return _ask_plugin(name, host.tokenizers[name].factory, width)
    if HUB_ID.fullmatch(name) and not _looks_like_a_file(path):
        return _read_hub(name, width)
    raise _unknown(name, [*BUILT_IN, *host.tokenizers])


def _default_host() -> PluginHost:
    from grammar_backends.plugins.host import default_host  # lazy: pluggy and every plugin, seldom needed here

    return default_host()


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long for a name, or a NUL in it
        return False


def _looks_like_a_file(path: Path) -> bool:
    return path.suffix in REFUSED or path.suffix == ".json"


def _unknown(name: str, known: list[str]) -> VocabularyError:
    from grammar_backends.plugins.host import did_you_mean  # lazy, as above

    hint = f"Known names: {', '.join(known)}. {ACCEPTED}"
    if os.sep in name or _looks_like_a_file(Path(name)):
        return VocabularyError(f"there is no file or directory {name!r}", hint=hint)
    return VocabularyError(f"there is no vocabulary {name!r}{did_you_mean(name, known)}", hint=hint)


def _ask_plugin(name: str, factory: str, width: int | None) -> Vocabulary:
    from grammar_backends.plugins.host import load_attribute  # lazy, as above

    try:
        vocabulary = load_attribute(factory)()
    except VocabularyError:
        raise
    except Exception as error:  # a plugin may raise anything
        reason = f"{type(error).__name__}: {trim(str(error))}"
        raise VocabularyError(f"the plugin's vocabulary {name} cannot be made: {reason}") from error
    if not isinstance(vocabulary, Vocabulary):
        raise VocabularyError(f"{factory} made a {type(vocabulary).__name__}, not a Vocabulary")
    return vocabulary if width is None else vocabulary.with_width(width)


def _read_path(path: Path, width: int | None) -> Vocabulary:
    if path.is_dir():
        return _read_directory(path, width)
    kind = _refused(path)
    if kind:
        raise VocabularyError(f"{path} is {kind}, which is not supported yet", hint=ACCEPTED)
    if path.name.startswith("tekken") and path.suffix == ".json":
        return read_tekken_file(path, width=width)
    beside = path.parent if path.name == "tokenizer.json" else None
    return _read_tokenizer_json(path, beside, width)


def _refused(path: Path) -> str | None:
    # Mistral writes versions behind the ending: tokenizer.model.v3.
    return next((REFUSED[suffix] for suffix in path.suffixes if suffix in REFUSED), None)


def _read_directory(path: Path, width: int | None) -> Vocabulary:
    if (path / "tokenizer.json").is_file():
        return _read_tokenizer_json(path / "tokenizer.json", path, width)
    try:
        files = sorted(path.iterdir())
    except OSError as error:
        raise VocabularyError(f"{path} cannot be read: {trim(str(error))}") from error
    for file in files:
        if file.name.startswith("tekken") and file.suffix == ".json":
            return _at_least(read_tekken_file(file, name=str(path)), width, _padded_size(path))
    for file in files:
        if kind := _refused(file):
            raise VocabularyError(f"{path} holds {kind}, {file.name}, which is not supported yet", hint=ACCEPTED)
    raise VocabularyError(f"{path} holds neither tokenizer.json nor tekken*.json")


def _read_tokenizer_json(path: Path, beside: Path | None, width: int | None) -> Vocabulary:
    tokenizer = _open_tokenizer_json(path)
    stop_ids = _configured_stop_ids(beside, tokenizer) if beside else []
    vocabulary = _read_named(str(path if beside is None else beside), tokenizer, stop_ids)
    return _at_least(vocabulary, width, _padded_size(beside) if beside else 0)


def _read_named(name: str, tokenizer: Any, stop_ids: list[int]) -> Vocabulary:
    try:
        return read_huggingface(tokenizer, stop_ids=stop_ids or None, name=name)
    except VocabularyError as error:
        raise VocabularyError(f"{name}: {error.message}", hint=error.hint) from error


def _open_tokenizer_json(path: Path) -> Any:
    try:
        from tokenizers import Tokenizer  # lazy: an optional dependency
    except ImportError as error:
        hint = "Install it: pip install 'grammar-backends[huggingface]'"
        raise VocabularyError(f"{path} needs the package tokenizers", hint=hint) from error
    try:
        return Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise VocabularyError(f"{path} cannot be read: {trim(str(error))}") from error
    except Exception as error:  # the library raises bare exceptions
        raise VocabularyError(f"{path} is not a tokenizer.json: {trim(str(error))}") from error


def _at_least(vocabulary: Vocabulary, width: int | None, padded: int) -> Vocabulary:
    # A configured size below the tokenizer's own (tokens added later) does not shrink the row.
    return vocabulary.with_width(max(vocabulary.size, padded) if width is None else width)


def _padded_size(directory: Path) -> int:
    config = _read_object(directory / "config.json")
    nested = config.get("text_config")
    size = config.get("vocab_size") or (nested.get("vocab_size") if isinstance(nested, dict) else None)
    return size if isinstance(size, int) else 0


def _configured_stop_ids(directory: Path, tokenizer: Any) -> list[int]:
    """Ids that the model's files call end of sequence: those that engines stop at, the tokenizer's own first."""
    found = list(_named_stop_ids(directory, tokenizer)) + list(_numbered(directory / "generation_config.json"))
    return list(dict.fromkeys(found or _numbered(directory / "config.json")))


def _named_stop_ids(directory: Path, tokenizer: Any) -> Iterator[int]:
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        token = _read_object(directory / file).get("eos_token")
        text = token.get("content") if isinstance(token, dict) else token
        if not isinstance(text, str):
            continue
        id_ = tokenizer.token_to_id(text)
        if id_ is None:
            hint = "Load it with transformers, which adds such tokens, and use Vocabulary.from_huggingface"
            raise VocabularyError(f"{directory / file} names eos_token {text!r}, which no token has", hint=hint)
        yield id_


def _numbered(path: Path) -> Iterator[int]:
    ids = _read_object(path).get("eos_token_id")
    for id_ in ids if isinstance(ids, list) else [ids]:
        if isinstance(id_, int) and not isinstance(id_, bool):
            yield id_


def _read_object(path: Path) -> dict[str, Any]:
    """A JSON file that may be absent."""
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise VocabularyError(f"{path} cannot be read: {trim(str(error))}") from error
    if not isinstance(data, dict):
        raise VocabularyError(f"{path} cannot be read: it holds no JSON object")
    return data


def _read_hub(name: str, width: int | None) -> Vocabulary:
    if importlib.util.find_spec("transformers") is None:
        hint = "Install it: pip install transformers; or give the path of a tokenizer.json"
        raise VocabularyError(f"{name!r} looks like a hub id, which needs the package transformers", hint=hint)
    try:
        import transformers  # lazy: seconds

        tokenizer = transformers.AutoTokenizer.from_pretrained(name)
    except Exception as error:  # no network, no such model, no permission, a broken repository, ...
        reason = f"{type(error).__name__}: {trim(str(error))}"
        raise VocabularyError(f"transformers cannot load the tokenizer {name!r}: {reason}") from error
    vocabulary = _read_named(name, tokenizer, _hub_stop_ids(name, tokenizer))
    return _at_least(vocabulary, width, _hub_padded_size(name))


def _hub_stop_ids(name: str, tokenizer: Any) -> list[int]:
    from transformers import GenerationConfig  # lazy, as above

    try:
        ids = GenerationConfig.from_pretrained(name).eos_token_id
    except Exception:  # most repositories have this file; one that has not is no error
        ids = None
    given = tokenizer.eos_token_id
    both = [*(given if isinstance(given, list) else [given]), *(ids if isinstance(ids, list) else [ids])]
    return list(dict.fromkeys(id_ for id_ in both if id_ is not None))


def _hub_padded_size(name: str) -> int:
    from transformers import AutoConfig  # lazy, as above

    try:
        config = AutoConfig.from_pretrained(name).get_text_config()
    except Exception:  # a model whose configuration transformers does not know: rows as wide as the tokenizer
        return 0
    size = getattr(config, "vocab_size", None)
    return size if isinstance(size, int) else 0
