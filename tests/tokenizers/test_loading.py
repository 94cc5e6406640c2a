"""`load_vocabulary`: names, files, directories, plugins, hub ids, and everything that is wrong with them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from grammar_backends import Vocabulary, load_vocabulary
from grammar_backends.errors import VocabularyError
from grammar_backends.plugins import PluginHost, TokenizerSpec, hookimpl
from grammar_backends.tokenizers import loading
from grammar_backends.tokenizers.files import find_in_package

EMPTY_HOST = PluginHost(autoload=False)


def make_tiny() -> Vocabulary:
    return Vocabulary([b"a", b"b", b"<eos>"], special_ids=[2], stop_ids=[2], name="tiny")


def make_nothing() -> None:
    return None


def make_trouble() -> Vocabulary:
    raise RuntimeError("out of paper")


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> PluginHost:
    home = ModuleType("a_plugins_home")
    home.__dict__.update(tiny=make_tiny, nothing=make_nothing, trouble=make_trouble)
    monkeypatch.setitem(sys.modules, "a_plugins_home", home)

    class Plugin:
        @hookimpl
        def grammar_backends_register_tokenizers(self) -> list[TokenizerSpec]:
            return [TokenizerSpec(name, f"a_plugins_home:{name}") for name in ("tiny", "nothing", "trouble", "absent")]

    return PluginHost(autoload=False, plugins={"papers": Plugin()})


@pytest.fixture
def directory(tmp_path: Path, styles: dict[str, Any]) -> Path:
    """A model's directory without configuration."""
    styles["byte-level"].save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def write(path: Path, data: Any) -> Path:
    path.write_text(json.dumps(data))
    return path


def test_b6_built_in_names() -> None:
    assert load_vocabulary("byte").size == 263
    assert load_vocabulary("byte", width=300).width == 300


def test_b8_tekken_comes_from_mistral_common() -> None:
    pytest.importorskip("mistral_common")
    vocabulary = load_vocabulary("tekken", width=131_100)
    assert (vocabulary.name, vocabulary.size, vocabulary.width) == ("tekken", 131_072, 131_100)
    assert vocabulary.special_names[9] == "[TOOL_CALLS]"


def test_b8_tekken_without_mistral_common_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(VocabularyError, match=r"pip install 'grammar-backends\[mistral\]'"):
        load_vocabulary("tekken")


def test_b6_loading_imports_no_tokenizer_library_that_it_does_not_need() -> None:
    code = (
        "import sys; from grammar_backends.tokenizers import load_vocabulary; load_vocabulary('byte')\n"
        "heavy = {'torch', 'transformers', 'tokenizers', 'mistral_common', 'tiktoken', 'pluggy'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_b6_a_fingerprint_is_the_same_in_every_process(directory: Path) -> None:
    pytest.importorskip("sentencepiece")
    names = ["byte", str(directory), str(packaged("mistral_common", "data/tokenizer.model.v1"))]
    names += [str(packaged("llama_models", "llama3/tokenizer.model"))]
    code = (
        "import sys; from grammar_backends import load_vocabulary\n"
        "print(*(load_vocabulary(name).fingerprint for name in sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *names],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [load_vocabulary(name).fingerprint for name in names]


@pytest.mark.parametrize("as_path", [str, Path])
@pytest.mark.parametrize("file", ["", "tokenizer.json"])
def test_b6_a_tokenizer_json_and_its_directory(
    directory: Path, styles: dict[str, Any], as_path: Any, file: str
) -> None:
    vocabulary = load_vocabulary(as_path(directory / file), host=EMPTY_HOST)
    tokenizer = styles["byte-level"]
    assert vocabulary.fingerprint == Vocabulary.from_huggingface(tokenizer).fingerprint
    assert vocabulary.stop_ids == (tokenizer.token_to_id("</s>"), tokenizer.token_to_id("<|im_end|>"))
    assert vocabulary.name == str(directory / file)


def test_a10_a_directorys_files_say_which_tokens_stop(directory: Path, styles: dict[str, Any]) -> None:
    id_of = styles["byte-level"].token_to_id
    write(directory / "tokenizer_config.json", {"eos_token": "<|im_end|>"})
    write(directory / "special_tokens_map.json", {"eos_token": {"content": "<|im_end|>", "lstrip": False}})
    assert load_vocabulary(directory).stop_ids == (id_of("<|im_end|>"),)
    write(directory / "generation_config.json", {"eos_token_id": [id_of("</s>"), id_of("<|im_end|>")]})
    assert load_vocabulary(directory).stop_ids == (id_of("<|im_end|>"), id_of("</s>"))


@pytest.mark.parametrize(("ids", "expected"), [(0, (0,)), ([0, 2], (0, 2)), (None, None)])
def test_a10_the_models_configuration_is_asked_last(
    directory: Path, styles: dict[str, Any], ids: Any, expected: tuple[int, ...] | None
) -> None:
    write(directory / "tokenizer_config.json", {"eos_token": None})
    write(directory / "config.json", {"eos_token_id": ids})
    well_known = Vocabulary.from_huggingface(styles["byte-level"]).stop_ids
    assert load_vocabulary(directory).stop_ids == (expected or well_known)


@pytest.mark.parametrize("config", [{"vocab_size": 1024}, {"text_config": {"vocab_size": 1024}}])
def test_b6_rows_are_as_wide_as_the_model(directory: Path, config: dict[str, Any]) -> None:
    write(directory / "config.json", config)
    assert load_vocabulary(directory).width == 1024
    assert load_vocabulary(directory / "tokenizer.json").width == 1024
    assert load_vocabulary(directory, width=800).width == 800


def test_b6_rows_are_never_narrower_than_the_tokenizer(directory: Path) -> None:
    write(directory / "config.json", {"vocab_size": 10})
    vocabulary = load_vocabulary(directory)
    assert vocabulary.width == vocabulary.size
    with pytest.raises(VocabularyError, match="width 10 is below the number of tokens"):
        load_vocabulary(directory, width=10)


def test_b6_only_a_models_own_configuration_counts(directory: Path) -> None:
    write(directory / "config.json", {"vocab_size": 4096})
    other = (directory / "tokenizer.json").rename(directory / "another.json")
    vocabulary = load_vocabulary(other)
    assert vocabulary.width == vocabulary.size
    assert vocabulary.name == str(other)


def test_b8_a_tekken_file_and_its_directory(tmp_path: Path) -> None:
    pytest.importorskip("mistral_common")
    source = loading.packaged_tekken()
    (tmp_path / "tekken.json").symlink_to(source)
    write(tmp_path / "config.json", {"vocab_size": 131_200})
    assert load_vocabulary(tmp_path / "tekken.json").size == 131_072
    assert load_vocabulary(tmp_path).width == 131_200


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("model.gguf", "cannot be read as GGUF"),
        ("qwen.tiktoken", "is not a tiktoken file"),
        ("tokenizer.model", "is not a SentencePiece model"),
        ("tokenizer.model.v3", "is not a SentencePiece model"),
    ],
)
def test_b6_a_files_ending_tells_its_format_where_the_content_does_not(tmp_path: Path, file: str, reason: str) -> None:
    pytest.importorskip("sentencepiece")
    (tmp_path / file).write_bytes(b"\x00\x01")
    for path in (tmp_path / file, tmp_path):
        with pytest.raises(VocabularyError, match=reason):
            load_vocabulary(path)


def packaged(package: str, file: str) -> Path:
    if not loading.is_installed(package):
        pytest.skip(f"the package {package}, which holds the file, is not installed")
    return find_in_package(package, file, hint="")


def test_b8_a_sentencepiece_file_and_its_directory(tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece")
    source = packaged("mistral_common", "data/mistral_instruct_tokenizer_240323.model.v3")
    (tmp_path / "tokenizer.model").symlink_to(source)
    write(tmp_path / "config.json", {"vocab_size": 33_000, "eos_token_id": 2})
    expected = Vocabulary.from_sentencepiece(source).with_width(33_000)
    for path in (tmp_path, tmp_path / "tokenizer.model"):
        assert load_vocabulary(path).fingerprint == expected.fingerprint
    write(tmp_path / "generation_config.json", {"eos_token_id": [2, 4]})
    assert load_vocabulary(tmp_path).stop_ids == (2, 4)
    assert load_vocabulary(source).name == str(source)


def test_b6_llamas_tokenizer_model_is_a_tiktoken_file() -> None:
    path = packaged("llama_models", "llama3/tokenizer.model")
    assert load_vocabulary(path).special_names[128_009] == "<|eot_id|>"


def test_b6_a_file_without_an_ending_is_known_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.symlink_to(packaged("llama_models", "llama3/tokenizer.model"))
    assert load_vocabulary(path).size == 128_256


def test_b6_of_several_files_the_one_that_says_most_is_read_and_named(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (directory / "model.gguf").write_bytes(b"GGUF")
    (directory / "tokenizer.model.v3").write_bytes(b"\x00")
    (directory / "tekken.json").write_bytes(b"{}")
    (directory / "config.json").write_bytes(b"{}")
    with caplog.at_level("INFO"):
        vocabulary = load_vocabulary(directory)
    assert vocabulary.name == str(directory / "tokenizer.json")
    (message,) = caplog.messages
    assert message == (
        f"{directory} holds model.gguf, tekken.json, tokenizer.json, tokenizer.model.v3: tokenizer.json is read"
    )


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        (["tekken_1.json", "tekken_2.json"], "tekken_2.json"),
        (["tekken.json", "tekken_2.json"], "tekken.json"),
        (["a.model.v1", "a.model.v3"], "a.model.v3"),
        (["tokenizer.model", "x.model"], "tokenizer.model"),
        (["m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "mmproj-f16.gguf"], "m-00001-of-00002.gguf"),
    ],
)
def test_b6_of_several_files_of_one_format_a_standard_name_or_the_latest_is_read(
    tmp_path: Path, files: list[str], chosen: str
) -> None:
    pytest.importorskip("sentencepiece")
    for file in files:
        (tmp_path / file).write_bytes(b"\x00")
    with pytest.raises(VocabularyError, match=f"{chosen} (is not|cannot)"):
        load_vocabulary(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\x00\xff\xfe", b"[]", b"null", b"{}", b'{"model": {"type": "Nobody"}}', b"[" * 100_000]
)
@pytest.mark.parametrize("file", ["tokenizer.json", "tekken.json", "some.bin"])
def test_b6_a_corrupt_file_is_named_with_the_reason(tmp_path: Path, file: str, content: bytes) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(VocabularyError) as caught:
        load_vocabulary(tmp_path / file)
    assert str(tmp_path / file) in caught.value.message
    assert ": " in caught.value.message


@pytest.mark.parametrize(
    "file", ["config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json"]
)
@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff"])
def test_b6_a_corrupt_configuration_is_named_with_the_reason(directory: Path, file: str, content: bytes) -> None:
    (directory / file).write_bytes(content)
    if file == "config.json":
        write(directory / "generation_config.json", {"eos_token_id": 1})
    with pytest.raises(VocabularyError, match=f"{file} cannot be read: "):
        load_vocabulary(directory)


def test_a10_a_stop_token_that_does_not_exist_is_an_error(directory: Path) -> None:
    write(directory / "tokenizer_config.json", {"eos_token": "<nowhere>"})
    with pytest.raises(VocabularyError, match=r"names eos_token '<nowhere>', which no token has"):
        load_vocabulary(directory)
    (directory / "tokenizer_config.json").unlink()
    write(directory / "generation_config.json", {"eos_token_id": 999_999})
    with pytest.raises(VocabularyError, match=r"id 999999 is outside"):
        load_vocabulary(directory)


def test_b6_a_tokenizer_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    Tokenizer(models.BPE(vocab={"a": 0}, merges=[])).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(VocabularyError, match=f"^{tmp_path}: the tokenizer's decoder is not supported: none"):
        load_vocabulary(tmp_path)


def test_b6_without_the_tokenizers_package_a_file_says_what_to_install(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(VocabularyError, match=r"grammar-backends\[huggingface\]"):
        load_vocabulary(directory)


def test_b6_an_empty_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match=r"holds no tokenizer\. Also taken"):
        load_vocabulary(tmp_path)


def test_b6_a_plugins_vocabulary_is_asked_for_by_name(host: PluginHost) -> None:
    assert load_vocabulary("tiny", host=host).name == "tiny"
    assert load_vocabulary("tiny", host=host, width=64).words == 2


def test_b6_installed_plugins_are_asked_when_no_host_is_given(
    host: PluginHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "_default_host", lambda: host)
    assert load_vocabulary("tiny").name == "tiny"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nothing", "made a NoneType, not a Vocabulary"),
        ("trouble", "vocabulary trouble cannot be made: RuntimeError: out of paper"),
        ("absent", "vocabulary absent cannot be made: AttributeError"),
    ],
)
def test_b6_a_plugins_failure_is_a_vocabulary_error(host: PluginHost, name: str, reason: str) -> None:
    with pytest.raises(VocabularyError, match=reason):
        load_vocabulary(name, host=host)


@pytest.mark.parametrize(
    ("name", "near"), [("tekkn", "tekken"), ("bytes", "byte"), ("TINY", "tiny"), ("zzzzzz", None), ("\x00", None)]
)
def test_b6_an_unknown_name_is_answered_with_the_nearest(host: PluginHost, name: str, near: str | None) -> None:
    with pytest.raises(VocabularyError) as caught:
        load_vocabulary(name, host=host)
    assert caught.value.message.endswith(f", did you mean {near!r}?" if near else repr(name))
    assert "Known names: byte, tekken, tiny" in str(caught.value)
    assert "tokenizer.json" in str(caught.value)


@pytest.mark.parametrize("name", ["no/such/tokenizer.json", "./nowhere", "models/a.gguf", "x" * 5000])
def test_b6_a_path_that_does_not_exist_is_said_so(name: str) -> None:
    with pytest.raises(VocabularyError, match=r"there is no (file or directory|vocabulary)"):
        load_vocabulary(name, host=EMPTY_HOST)
    with pytest.raises(VocabularyError, match="there is no file or directory"):
        load_vocabulary(Path(name), host=EMPTY_HOST)


def test_b6_a_misspelt_file_is_answered_with_the_nearest(directory: Path) -> None:
    with pytest.raises(VocabularyError, match=r"tokeniser\.json', did you mean 'tokenizer\.json'\?"):
        load_vocabulary(str(directory / "tokeniser.json"), host=EMPTY_HOST)


@pytest.mark.parametrize("name", [None, 3, b"byte"])
def test_b6_other_types_are_refused(name: Any) -> None:
    with pytest.raises(VocabularyError, match="is named by a string or a path"):
        load_vocabulary(name)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, styles: dict[str, Any]) -> dict[str, Any]:
    """A transformers that has one model; the dictionary says what its files hold."""
    files: dict[str, Any] = {"eos_token_id": None, "generation": None, "vocab_size": None}

    def get(name: str) -> Any:
        if name != "org/model":
            raise OSError(f"{name} is not a model")
        return SimpleNamespace(backend_tokenizer=styles["gemma"], eos_token_id=files["eos_token_id"])

    def generation(name: str) -> Any:
        if files["generation"] is None:
            raise OSError("no generation_config.json")
        return SimpleNamespace(eos_token_id=files["generation"])

    def config(name: str) -> Any:
        if files["vocab_size"] is None:
            raise ValueError("unknown architecture")
        return SimpleNamespace(get_text_config=lambda: SimpleNamespace(vocab_size=files["vocab_size"]))

    module = ModuleType("transformers")
    module.__spec__ = ModuleSpec("transformers", None)
    module.__dict__.update(
        AutoTokenizer=SimpleNamespace(from_pretrained=get),
        GenerationConfig=SimpleNamespace(from_pretrained=generation),
        AutoConfig=SimpleNamespace(from_pretrained=config),
    )
    monkeypatch.setitem(sys.modules, "transformers", module)
    return files


def test_b6_a_hub_id_goes_through_transformers(hub: dict[str, Any], styles: dict[str, Any]) -> None:
    vocabulary = load_vocabulary("org/model", host=EMPTY_HOST)
    assert vocabulary.text_tokens == Vocabulary.from_huggingface(styles["gemma"]).text_tokens
    assert (vocabulary.name, vocabulary.width) == ("org/model", vocabulary.size)


def test_b6_a_hub_models_configuration_counts(hub: dict[str, Any]) -> None:
    hub.update(eos_token_id=2, generation=[1, 2], vocab_size=9000)
    vocabulary = load_vocabulary("org/model", host=EMPTY_HOST)
    assert (vocabulary.stop_ids, vocabulary.width) == ((2, 1), 9000)
    assert load_vocabulary("org/model", host=EMPTY_HOST, width=9999).width == 9999


def test_b6_a_hub_model_that_cannot_be_loaded_is_a_vocabulary_error(hub: dict[str, Any]) -> None:
    with pytest.raises(
        VocabularyError, match="cannot load the tokenizer 'org/other': OSError: org/other is not a model"
    ):
        load_vocabulary("org/other", host=EMPTY_HOST)


def test_b6_a_hub_id_without_transformers_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(VocabularyError, match="needs the package transformers"):
        load_vocabulary("org/model", host=EMPTY_HOST)
