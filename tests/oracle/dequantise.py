"""Values of gguf-py for tests/fixtures/engine/dequantise.json.

    python tests/oracle/dequantise.py > tests/fixtures/engine/dequantise.json

Needs gguf and numpy from PyPI. Random bytes, so scales take every form a half float has: subnormal, negative, large;
blocks whose scale is infinite or NaN are left out. Floats are written by their bits.
"""
import gguf
import numpy as np

rng = np.random.default_rng(20261130)
print('{\n "made_by": "tests/oracle/dequantise.py with gguf-py and numpy %s"' % np.__version__, end="")
for name, block, scales in [("F32", 4, 0), ("F16", 2, 1), ("BF16", 2, 0), ("Q8_0", 34, 1), ("Q4_1", 20, 2)]:
    kind = gguf.GGMLQuantizationType[name]
    rows = []
    while len(rows) < (6 if block > 4 else 192):
        row = rng.integers(0, 256, block, dtype=np.uint8)
        halves = row[: 2 * scales].view(np.float16)
        if np.all(np.isfinite(halves)):
            rows.append(row)
    data = np.concatenate(rows)
    if name == "BF16":
        values = (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        reference = gguf.quants.dequantize(data.reshape(1, -1), kind).reshape(-1)
        assert np.array_equal(values.view(np.uint32), reference.view(np.uint32))
    values = gguf.quants.dequantize(data.reshape(1, -1) if name != "F32" else data.view(np.float32), kind).reshape(-1).astype(np.float32)
    print(',\n "%s": {"bytes": "%s",\n  "bits": %s}' % (name, data.tobytes().hex(), str(values.view(np.uint32).tolist()).replace(" ", "")), end="")
print("\n}")
