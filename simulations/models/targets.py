"""What an audit can be asked about: a configuration of `transformers`, a saved model, or a function of the user's.

Nothing is ever downloaded and no code but the user's own file and `transformers` itself is run.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial, reduce
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import nn

from simulations.models.outline import check_memory, outline
from simulations.models.running import LENGTH, Example
from simulations.models.shrinking import shrink

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

Sizes = Literal["auto", "tiny", "given"]

LARGEST = 20_000_000
"""Parameters up to which ``auto`` builds a configuration at its given sizes."""


HEADS = {
    "CausalLM": "CAUSAL_LM",
    "Seq2SeqLM": "SEQ_TO_SEQ_CAUSAL_LM",
    "SpeechSeq2Seq": "SPEECH_SEQ_2_SEQ",
    "MaskedLM": "MASKED_LM",
}


@dataclass(frozen=True)
class Subject:
    """A model to audit.

    Attributes
    ----------
    example : what it is called with; None: random tokens.
    given : where ``model`` has tiny sizes, the model of the given sizes on the meta device, for counting.
    """

    name: str
    model: nn.Module
    example: Example | None
    config: PreTrainedConfig | None
    given: nn.Module | None


def find_subject(target: str, *, sizes: Sizes = "auto", overrides: Mapping[str, Any] | None = None) -> Subject:
    """The model that ``target`` names, with random weights unless it is a folder of a saved model.

    Parameters
    ----------
    target : a configuration class of `transformers` (``LlamaConfig``), a model type (``llama``), a ``config.json``, a
        folder with one and with weights as safetensors, or ``FILE.py:FUNCTION``, which returns a module and an example
        input.
    sizes : ``tiny`` keeps the structure of a configuration and shrinks its sizes; ``given`` builds it as it is;
        ``auto`` as it is up to 20 million parameters.  A saved model is always as it is.
    overrides : fields of the configuration to set first, nested ones as ``text_config.hidden_size``.

    Raises
    ------
    ValueError : no such target, a field that the configuration lacks, a configuration that its class refuses, or a
        model that would need to be downloaded or to run code of its own.
    """
    if sizes not in get_args(Sizes):
        raise ValueError(f"sizes={sizes!r}: expected one of {', '.join(get_args(Sizes))}")
    file, _, function = target.rpartition(":")
    if file.endswith(".py"):
        return _from_function(target, file, function, overrides)
    if find_spec("transformers") is None:
        raise ValueError(f"{target}: transformers is not installed: pip install 'scalevec[hf]'")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    path = Path(target)
    if path.suffix == ".py":
        raise ValueError(f"{target}: expected {target}:FUNCTION, which returns a torch module and an example input")
    if path.is_dir():
        return _from_folder(path, sizes, overrides)
    if path.suffix == ".json" or path.is_file():
        return _from_config(target, _read_config(path, overrides or {}), sizes)
    return _from_config(target, _named_config(target, overrides or {}), sizes)


def _from_function(target: str, file: str, name: str, overrides: Mapping[str, Any] | None) -> Subject:
    from scalevec_theory.registry import UnknownName, module_in_file

    if overrides:
        raise ValueError(f"{target}: a function has no configuration of which to set {', '.join(overrides)}")
    module = module_in_file(file)
    if not hasattr(module, name):
        raise UnknownName(f"function in {file}", name, (x for x in vars(module) if not x.startswith("_")))
    try:
        returned = getattr(module, name)()
    except Exception as error:
        raise ValueError(f"{target} raised {type(error).__name__}: {error}") from error
    if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[0], nn.Module):
        raise ValueError(f"{target} returned {_short(returned)}: expected a torch module and an example input")
    return Subject(target, returned[0], returned[1], None, None)


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(type(v).__name__ for v in value)})"
    return type(value).__name__


def _from_folder(path: Path, sizes: Sizes, overrides: Mapping[str, Any] | None) -> Subject:
    """The saved model with its weights, which only safetensors may hold."""
    if sizes == "tiny" or overrides:
        raise ValueError(f"{path}: a saved model has the sizes it has; give {path / 'config.json'} for others")
    if not any(path.glob("*.safetensors")):
        raise ValueError(f"{path}: no weights (*.safetensors) in it; give {path / 'config.json'} for random ones")
    config = _read_config(path / "config.json", {})
    auto = _class_of(config)
    try:
        model = auto.from_pretrained(
            path, config=config, local_files_only=True, use_safetensors=True, trust_remote_code=False
        )
    except Exception as error:
        raise ValueError(f"{path}: cannot be loaded: {_one_line(error)}") from error
    return Subject(str(path), model.eval(), _example(model, config), config, None)


def _from_config(name: str, config: PreTrainedConfig, sizes: Sizes) -> Subject:
    given = outline(partial(_build, config))
    count = sum(p.numel() for p in given.parameters())
    small = sizes == "tiny" or (sizes == "auto" and count > LARGEST)
    if small:
        config = shrink(config, given)
    else:
        check_memory(given, 2, "smaller sizes, or sizes=tiny")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = _build(config)
    return Subject(name, model.eval(), _example(model, config), config, given if small else None)


def _build(config: PreTrainedConfig) -> nn.Module:
    """A model of the configuration in float32, with its own initial values.

    Raises
    ------
    ValueError : its class refuses the configuration, or needs a package that is not installed.
    """
    try:
        found = _class_of(config)
        if hasattr(found, "from_config"):
            return found.from_config(config, dtype=torch.float32, trust_remote_code=False)
        return found._from_config(config, dtype=torch.float32)
    except Exception as error:
        raise ValueError(f"{type(config).__name__}: no model can be built: {_one_line(error)}") from error


def _class_of(config: PreTrainedConfig) -> Any:
    """The first of the auto classes that knows the configuration: with a head for language, or with none; else the
    class of its own that the configuration's module has, as for a tower of a larger model."""
    import transformers

    transformers.logging.set_verbosity_error()  # which of its kernels is slow does not matter here
    heads = ["CausalLM", "Seq2SeqLM", "MaskedLM"]
    architectures = config.architectures or []
    if getattr(config, "is_decoder", None) is False or any(a.endswith("MaskedLM") for a in architectures):
        heads.reverse()  # an encoder can also be had with a decoder's head, which it then does not suit
    if config.is_encoder_decoder:
        heads[:0] = ["Seq2SeqLM", "SpeechSeq2Seq"]  # before the decoder alone, which reads no encoder
    for head in heads:
        mapping = getattr(transformers, f"MODEL_FOR_{HEADS[head]}_MAPPING")
        if type(config) in mapping:
            return getattr(transformers, f"AutoModelFor{head}")
    if type(config) in transformers.MODEL_MAPPING:
        return transformers.AutoModel
    models = vars(_modeling(type(config)))
    if (own := models.get(type(config).__name__.replace("Config", "Model"))) is not None:
        return own
    raise ValueError(f"{type(config).__name__}: transformers has no model of this configuration")


def _modeling(config_class: type) -> Any:
    """The module with the models of a configuration's class."""
    return importlib.import_module(config_class.__module__.replace("configuration_", "modeling_"))


def _example(model: nn.Module, config: PreTrainedConfig) -> Example | None:
    """Images, sounds and tokens, as far as the model reads them; None: tokens, made where needed."""
    generator = torch.Generator().manual_seed(0)
    normal = partial(torch.randn, generator=generator)
    text = config.get_text_config()
    example: dict[str, Any] = {}
    two_towers = hasattr(model, "logit_scale")  # as of models that compare images with texts
    if model.main_input_name == "pixel_values" or two_towers:
        example["pixel_values"] = normal(_image_shape(getattr(config, "vision_config", config)))
    elif model.main_input_name == "input_values" and hasattr(config, "num_mel_bins"):
        example["input_values"] = normal((2, config.max_length, config.num_mel_bins))
    elif model.main_input_name == "input_values":
        stride = getattr(config, "inputs_to_logits_ratio", 320)
        example["input_values"] = normal((2, LENGTH * stride + stride))
    elif hasattr(config, "feature_projection_input_dim"):
        example["input_features"] = normal((2, LENGTH, config.feature_projection_input_dim))
    sound = getattr(config, "encoder_config", config)
    if model.main_input_name == "input_features" and hasattr(sound, "subsampling_factor"):
        example["input_features"] = normal((2, LENGTH * sound.subsampling_factor, sound.num_mel_bins))
    if not (config.is_encoder_decoder or two_towers) or not hasattr(text, "vocab_size"):
        return example or None
    tokens = torch.randint(3, text.vocab_size, (2, 2, LENGTH), generator=generator)
    if two_towers:
        return example | {"input_ids": tokens[0, :, : getattr(text, "max_position_embeddings", LENGTH)]}
    spoken = model.main_input_name == "input_features" and hasattr(config, "num_mel_bins")
    if spoken:  # two frames of sound for each position
        frames = normal((2, config.num_mel_bins, 2 * config.max_source_positions))
        return {"input_features": frames, "decoder_input_ids": tokens[1], "use_cache": False}
    decodes = "decoder_input_ids" in inspect.signature(model.forward).parameters
    return (example or {"input_ids": tokens[0]}) | (
        {"decoder_input_ids": tokens[1], "use_cache": False} if decodes else {}
    )


def _image_shape(config: PreTrainedConfig) -> tuple[int, ...]:
    """Two images, or two films, of the sizes that a configuration gives; 64 by 64 where it gives none."""
    size = getattr(config, "image_size", None) or 64
    frames = [config.num_frames] if isinstance(getattr(config, "num_frames", None), int) else []
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return (2, *frames, getattr(config, "num_channels", 3), height, width)


def _named_config(target: str, overrides: Mapping[str, Any]) -> PreTrainedConfig:
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

    if target in CONFIG_MAPPING_NAMES:
        return _make(CONFIG_MAPPING[target], {}, overrides)
    known = [*CONFIG_MAPPING_NAMES, *CONFIG_MAPPING_NAMES.values()]
    if target in known:
        return _make(getattr(transformers, target), {}, overrides)
    near = difflib.get_close_matches(target, known, 3, 0.5)
    hint = f"did you mean {', '.join(near)}?" if near else ""
    raise ValueError(
        f"{target!r}: no configuration class, model type, config.json, folder or FILE.py:FUNCTION of that name; {hint}"
    )


def _read_config(path: Path, overrides: Mapping[str, Any]) -> PreTrainedConfig:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {getattr(error, 'strerror', None) or f'no JSON: {error}'}") from error
    kind = fields.get("model_type") if isinstance(fields, dict) else None
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING_NAMES:
        own = "; its own code (auto_map) is not run" if isinstance(fields, dict) and "auto_map" in fields else ""
        raise ValueError(f"{path}: model_type={kind!r} is none of transformers{own}")
    return _make(CONFIG_MAPPING[kind], fields, overrides)


def _make(config_class: Any, fields: dict[str, Any], overrides: Mapping[str, Any]) -> PreTrainedConfig:
    """A configuration of the class with some fields set."""
    for key, value in overrides.items():
        *parts, last = key.split(".")
        owner: Any = config_class
        for part in parts:
            owner = getattr(owner, "sub_configs", {}).get(part)
        aliases = getattr(owner, "attribute_map", {})
        names = [f.name for f in dataclasses.fields(owner)] if dataclasses.is_dataclass(owner) else []
        if last not in names and last not in aliases and not (owner and _read_by_model(owner, last)):
            near = difflib.get_close_matches(last, [*names, *aliases], 3, 0.5)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise ValueError(f"{key}={value!r}: no such field of {config_class.__name__}{hint}")
        inside = reduce(lambda d, part: d.setdefault(part, {}), parts, fields)
        inside[aliases.get(last, last)] = value
    try:
        return config_class.from_dict(fields)
    except Exception as error:
        raise ValueError(f"{config_class.__name__}: {_one_line(error)}") from error


def _read_by_model(config_class: type, name: str) -> bool:
    """Whether the code of the class's models speaks of a field that the class does not declare but may be given."""
    return bool(re.search(rf"""config\.{name}\b|["']{name}["']""", inspect.getsource(_modeling(config_class))))


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
