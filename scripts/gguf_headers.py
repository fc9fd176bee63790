#!/usr/bin/env python3
"""Writes the headers of GGUF files, each with the config.json of the model that it was made from.

The files are those of llama.cpp's convert_hf_to_gguf.py, made from folders of small random models
(Hugging Face's save_pretrained with the sizes of check_parameter_counts.py). Needs `pip install gguf`.

    scripts/gguf_headers.py FOLDER/config.json FILE.gguf [...] > scenarios/tests/gguf_headers.jsonl
"""

import json
import math
import sys

from gguf import GGUFReader


def finite(value):
    """The value without infinite numbers, which JSON has not."""
    if isinstance(value, list):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def header(path):
    """The architecture's keys without the tokeniser's, and the tensors' shapes, rows first."""
    reader = GGUFReader(path)
    kept = {"general.architecture", "general.file_type"}
    fields = {name: finite(field.contents()) for name, field in reader.fields.items() if not name.startswith(("GGUF", "tokenizer", "general")) or name in kept}
    return fields, {tensor.name: [int(size) for size in reversed(tensor.shape)] for tensor in reader.tensors}


def main():
    names = sys.argv[1:]
    for config, file in zip(names[::2], names[1::2]):
        fields, tensors = header(file)
        with open(config, encoding="utf-8") as text:
            model = json.load(text)
        print(json.dumps({"config": model, "metadata": fields, "tensors": tensors}))


if __name__ == "__main__":
    main()
