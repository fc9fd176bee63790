"""The weights of the golden models, from seeds: `weights.json` lists them, nothing stores them.

Each `weights.json` says which normal numbers numpy's PCG64 draws for which tensor. The tests draw the
same numbers in Rust (`tests/suite/golden_files.rs`) and check the digest, so both sides have the same
bytes.
"""

import json

import numpy as np


def digest(arrays):
    """FNV-1a (64 bits) over the 32-bit words of all arrays, as 16 hexadecimal digits."""
    value = 0xCBF29CE484222325
    for array in arrays:
        for word in np.ascontiguousarray(array).view(np.uint32).ravel().tolist():
            value = (value ^ word) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def manifest(seed, draws, saved):
    """What `weights.json` says of a model.

    `draws` are (values, mean, deviation) of its parameters in the order in which they were drawn,
    `saved` the tensors of its files by name. A parameter may be saved as several tensors that follow
    one another in it, such as the matrices of experts.
    """
    left, tensors = dict(saved), []
    for values, mean, deviation in draws:
        flat, at = values.ravel(), 0
        while at < flat.size:
            name = next(
                name for name, tensor in left.items()
                if tensor.size <= flat.size - at and np.array_equal(tensor.ravel(), flat[at : at + tensor.size])
            )
            tensor = left.pop(name)
            tensors.append([name, list(tensor.shape), mean, deviation])
            at += tensor.size
    assert not left, f"drawn by nobody: {sorted(left)}"
    return {"seed": seed, "digest": digest(saved[name] for name, *_ in tensors), "tensors": tensors}


def draw(folder):
    """The tensors of a golden folder by name."""
    listed = json.loads((folder / "weights.json").read_text())
    rng, tensors = np.random.default_rng(listed["seed"]), {}
    for name, shape, mean, deviation in listed["tensors"]:
        values = np.float32(deviation) * rng.standard_normal(shape, dtype=np.float32)
        tensors[name] = values if mean is None else np.float32(mean) + values
    assert digest(tensors.values()) == listed["digest"], f"{folder}: other weights"
    return tensors
