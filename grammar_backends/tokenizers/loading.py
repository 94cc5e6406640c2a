"""Finds a vocabulary by name: built in, a file, a plugin's, or a model on the Hugging Face hub.

`load_vocabulary` tries these in that order and raises `VocabularyError` for everything that goes wrong. The formats
themselves are read by the other modules here.
"""

from __future__ import annotations

import functools
import logging
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grammar_backends.contract.vocabulary import Vocabulary
from grammar_backends.errors import VocabularyError, trim
from grammar_backends.tokenizers.files import import_library, is_installed, read_bytes, read_json_object
from grammar_backends.tokenizers.gguf import read_gguf
from grammar_backends.tokenizers.gguf_header import MAGIC
from grammar_backends.tokenizers.huggingface import read_huggingface
from grammar_backends.tokenizers.mistral import packaged_tekken, read_tekken_file
from grammar_backends.tokenizers.raw_bytes import byte_vocabulary
from grammar_backends.tokenizers.sentencepiece import read_sentencepiece
from grammar_backends.tokenizers.tiktoken import read_tiktoken_file

if TYPE_CHECKING:
    from grammar_backends.plugins.host import PluginHost

__all__ = ["BUILT_IN", "load_vocabulary"]

logger = logging.getLogger(__name__)


def _tekken(*, width: int | None = None) -> Vocabulary:
    return read_tekken_file(packaged_tekken(), width=width, name="tekken")


BUILT_IN: dict[str, Callable[..., Vocabulary]] = {"byte": byte_vocabulary, "tekken": _tekken}
"""Vocabularies that need no plugin and no download, by name."""

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)

ENDINGS = {
    ".json": "tokenizer.json",
    ".gguf": "gguf",
    ".tiktoken": "tiktoken",
    ".model": "sentencepiece",
    ".spm": "sentencepiece",
}
"""Formats by the ending of their files, where the content does not show the format."""

TIKTOKEN_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2} \d+\r?\n")

STANDARD_FILES = ("tokenizer.json", "tekken.json", "tokenizer.model", "tiktoken.model")
"""Names under which a model's directory keeps its tokenizer: the files beside them are the model's configuration."""

PREFERENCE = ("tokenizer.json", "tekken", "sentencepiece", "tiktoken", "gguf")
"""Formats of a directory's files, the one that says most about the tokenizer first."""

ACCEPTED = (
    "Also taken: a tokenizer.json, a tekken*.json, a SentencePiece or tiktoken file, a .gguf, a directory that holds "
    "one, and a hub id (org/name) when transformers is installed"
)


def load_vocabulary(
    name: str | os.PathLike[str], *, width: int | None = None, host: PluginHost | None = None
) -> Vocabulary:
    """The vocabulary that `name` stands for.

    Pseudo-code::

        a built-in name ("byte", "tekken")        -> that (write ./byte for a file called so)
        an existing file                          -> read it; its format shows in the content, else in the name
        an existing directory                     -> the file in it that comes first in `PREFERENCE`; of several with
                                                     one format, one with a standard name, else the latest by name
        a name that a plugin has registered       -> ask the plugin
        org/name, and transformers is installed   -> AutoTokenizer.from_pretrained(name)

    Args:
        name: as above.
        width: ids that a row covers. When absent: what the model's files say (the `vocab_size` in `config.json`, the
            embedding in a GGUF), if that is larger than the number of tokens (B6).
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
    return path.suffix in ENDINGS


def _unknown(name: str, known: list[str]) -> VocabularyError:
    from grammar_backends.plugins.host import did_you_mean  # lazy, as above

    hint = f"Known names: {', '.join(known)}. {ACCEPTED}"
    if os.sep in name or _looks_like_a_file(Path(name)):
        near = did_you_mean(Path(name).name, _names_beside(Path(name)))
        return VocabularyError(f"there is no file or directory {name!r}{near}", hint=hint)
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


def _names_beside(path: Path) -> list[str]:
    try:
        return [each.name for each in path.parent.iterdir()]
    except (OSError, ValueError):
        return []


def _read_path(path: Path, width: int | None) -> Vocabulary:
    if path.is_dir():
        return _read_directory(path, width)
    return READERS[_format(path)](path, path.parent if path.name in STANDARD_FILES else None, str(path), width)


def _format(path: Path) -> str:
    if path.suffix == ".json":
        return "tekken" if path.name.startswith("tekken") else "tokenizer.json"
    try:
        with path.open("rb") as file:
            start = file.read(1024)
    except OSError as error:
        raise VocabularyError(f"{path} cannot be read: {trim(str(error))}") from error
    if start.startswith(MAGIC):
        return "gguf"
    if TIKTOKEN_LINE.match(start):
        return "tiktoken"  # Llama's tokenizer.model, too
    # Mistral writes versions behind the ending: tokenizer.model.v3.
    return next((ENDINGS[suffix] for suffix in path.suffixes if suffix in ENDINGS), "tokenizer.json")


def _read_directory(path: Path, width: int | None) -> Vocabulary:
    try:
        files = sorted(file for file in path.iterdir() if _may_hold_tokenizer(file))
    except OSError as error:
        raise VocabularyError(f"{path} cannot be read: {trim(str(error))}") from error
    if not files:
        raise VocabularyError(f"{path} holds no tokenizer", hint=ACCEPTED)
    formats = {file: _format(file) for file in files}
    best = min(formats.values(), key=PREFERENCE.index)
    of_best = [file for file in files if formats[file] == best]
    chosen = next((file for file in of_best if file.name in STANDARD_FILES), of_best[0 if best == "gguf" else -1])
    if len(files) > 1:
        logger.info("%s holds %s: %s is read", path, ", ".join(file.name for file in files), chosen.name)
    return READERS[best](chosen, path, str(path if len(files) == 1 else chosen), width)


def _may_hold_tokenizer(file: Path) -> bool:
    if file.suffix == ".json":
        return file.name == "tokenizer.json" or file.name.startswith("tekken")
    # A projector is a GGUF file without a tokenizer that lies beside a model which sees.
    return any(suffix in ENDINGS for suffix in file.suffixes) and not file.name.startswith("mmproj")


def _read_tekken(path: Path, beside: Path | None, name: str, width: int | None) -> Vocabulary:
    return _at_least(read_tekken_file(path, name=name), width, _padded_size(beside))


def _read_sentencepiece(path: Path, beside: Path | None, name: str, width: int | None) -> Vocabulary:
    read = functools.partial(read_sentencepiece, path, name=name)
    return _at_least(_with_configured_stops(read, beside), width, _padded_size(beside))


def _read_tiktoken(path: Path, beside: Path | None, name: str, width: int | None) -> Vocabulary:
    read = functools.partial(read_tiktoken_file, path, name=name, special=_configured_special(beside))
    return _at_least(_with_configured_stops(read, beside), width, _padded_size(beside))


def _read_gguf(path: Path, beside: Path | None, name: str, width: int | None) -> Vocabulary:
    return read_gguf(path, name=name, width=width)  # the file has the model's configuration in it


def _with_configured_stops(read: Callable[..., Vocabulary], beside: Path | None) -> Vocabulary:
    vocabulary = read()
    ids = {text: id_ for id_, text in vocabulary.special_names.items()}
    configured = _configured_stop_ids(beside, ids.get) if beside else []
    if vocabulary.stop_set.issuperset(configured):
        return vocabulary
    return read(stop_ids=[*configured, *vocabulary.stop_ids])


def _configured_special(directory: Path | None) -> dict[int, str]:
    """Special tokens that the model's configuration adds to its tokenizer, by id."""
    added = _read_optional(directory, "tokenizer_config.json").get("added_tokens_decoder")
    found = {}
    for id_, token in added.items() if isinstance(added, dict) else ():
        if isinstance(token, dict) and token.get("special") and str(id_).isdecimal():
            found[int(id_)] = str(token.get("content"))
    return found


def _read_tokenizer_json(path: Path, beside: Path | None, name: str, width: int | None) -> Vocabulary:
    tokenizer = _open_tokenizer_json(path)
    stop_ids = _configured_stop_ids(beside, tokenizer.token_to_id) if beside else []
    return _at_least(_read_named(name, tokenizer, stop_ids), width, _padded_size(beside))


def _read_named(name: str, tokenizer: Any, stop_ids: list[int]) -> Vocabulary:
    try:
        return read_huggingface(tokenizer, stop_ids=stop_ids or None, name=name)
    except VocabularyError as error:
        raise VocabularyError(f"{name}: {error.message}", hint=error.hint) from error


def _open_tokenizer_json(path: Path) -> Any:
    library = import_library("tokenizers", str(path), "huggingface")
    try:
        return library.Tokenizer.from_str(read_bytes(path).decode())
    except VocabularyError:
        raise
    except Exception as error:  # the library raises bare exceptions
        raise VocabularyError(f"{path} is not a tokenizer.json: {trim(str(error))}") from error


def _at_least(vocabulary: Vocabulary, width: int | None, padded: int) -> Vocabulary:
    # A configured size below the tokenizer's own (tokens added later) does not shrink the row.
    return vocabulary.with_width(max(vocabulary.size, padded) if width is None else width)


def _padded_size(directory: Path | None) -> int:
    config = _read_optional(directory, "config.json")
    nested = config.get("text_config")
    size = config.get("vocab_size") or (nested.get("vocab_size") if isinstance(nested, dict) else None)
    return size if isinstance(size, int) else 0


def _configured_stop_ids(directory: Path, id_of: Callable[[str], int | None]) -> list[int]:
    """Ids that the model's files call end of sequence: those that engines stop at, the tokenizer's own first."""
    found = [*_named_stop_ids(directory, id_of), *_numbered(directory, "generation_config.json")]
    return list(dict.fromkeys(found or _numbered(directory, "config.json")))


def _named_stop_ids(directory: Path, id_of: Callable[[str], int | None]) -> Iterator[int]:
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        token = _read_optional(directory, file).get("eos_token")
        text = token.get("content") if isinstance(token, dict) else token
        if not isinstance(text, str):
            continue
        id_ = id_of(text)
        if id_ is None:
            hint = "Load it with transformers, which adds such tokens, and use Vocabulary.from_huggingface"
            raise VocabularyError(f"{directory / file} names eos_token {text!r}, which no token has", hint=hint)
        yield id_


def _numbered(directory: Path, file: str) -> Iterator[int]:
    ids = _read_optional(directory, file).get("eos_token_id")
    for id_ in ids if isinstance(ids, list) else [ids]:
        if isinstance(id_, int) and not isinstance(id_, bool):
            yield id_


def _read_optional(directory: Path | None, file: str) -> dict[str, Any]:
    """A JSON object that may be absent."""
    if directory is None or not (directory / file).is_file():
        return {}
    return read_json_object(directory / file)


def _read_hub(name: str, width: int | None) -> Vocabulary:
    if not is_installed("transformers"):
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


READERS: dict[str, Callable[[Path, Path | None, str, int | None], Vocabulary]] = {
    "tokenizer.json": _read_tokenizer_json,
    "tekken": _read_tekken,
    "sentencepiece": _read_sentencepiece,
    "tiktoken": _read_tiktoken,
    "gguf": _read_gguf,
}
"""Readers by format: of a file, the directory of the model's configuration, a name for messages, and a width."""
