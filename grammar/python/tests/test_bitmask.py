import numpy
import pytest
from support import bits

import specdec_grammar as sg

LIBRARIES = ["numpy", "torch"]


def allowed_columns(bitmask, row, columns):
    ids = set(bits(bitmask[row]))
    return [i in ids for i in range(columns)]


def test_shapes():
    assert sg.get_bitmask_shape(3, 64) == (3, 2)
    assert sg.get_bitmask_shape(1, 65) == (1, 3)
    bitmask = sg.allocate_token_bitmask(3, 65)
    assert tuple(bitmask.shape) == (3, 3) and "int32" in str(bitmask.dtype)
    assert bits(bitmask[0]) == list(range(96))
    bitmask[1] = 0
    sg.reset_token_bitmask(bitmask)
    assert bits(bitmask[1]) == list(range(96))


def random_case(seed, rows=4, columns=100):
    generator = numpy.random.default_rng(seed)
    bitmask = generator.integers(-(2**31), 2**31, (rows, 4), dtype=numpy.int64).astype(numpy.int32)
    bitmask[0, 1] = -1
    bitmask[0, 2] = 0
    return generator.standard_normal((rows, columns)), bitmask


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_apply_to_numpy(dtype):
    logits, bitmask = random_case(1)
    logits = logits.astype(dtype)
    expected = logits.copy()
    for row in range(4):
        expected[row, [not a for a in allowed_columns(bitmask, row, 100)]] = -numpy.inf
    sg.apply_token_bitmask_inplace(logits, bitmask)
    assert (logits == expected).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_apply_to_torch(dtype):
    torch = pytest.importorskip("torch")
    values, words = random_case(2)
    logits = torch.tensor(values).to(getattr(torch, dtype))
    bitmask = torch.from_numpy(words)
    expected = logits.clone()
    for row in range(4):
        expected[row, [not a for a in allowed_columns(bitmask, row, 100)]] = -torch.inf
    sg.apply_token_bitmask_inplace(logits, bitmask)
    assert torch.equal(logits, expected)


def test_apply_on_a_device_is_the_same():
    """The arithmetic for other devices, here with the CPU as the device."""
    torch = pytest.importorskip("torch")
    from specdec_grammar.bitmask import _apply_on_device

    for columns in (97, 128, 150):
        for options in ((None, None), (70, None), (None, [2, 0]), (columns, [3])):
            values, words = random_case(3, columns=columns)
            a, b = (torch.tensor(values, dtype=torch.float32) for _ in range(2))
            bitmask = torch.from_numpy(words)
            sg.apply_token_bitmask_inplace(a, bitmask, vocab_size=options[0], indices=options[1])
            _apply_on_device(b, bitmask, *options)
            assert torch.equal(a, b), (columns, options)


def test_apply_to_some_rows_and_columns():
    logits = numpy.zeros((3, 100), numpy.float32)
    bitmask = numpy.zeros((3, 4), numpy.int32)
    sg.apply_token_bitmask_inplace(logits, bitmask, vocab_size=40, indices=[1])
    assert not logits[[0, 2]].any() and not logits[1, 40:].any()
    assert numpy.isinf(logits[1, :40]).all()
    sg.apply_token_bitmask_inplace(logits, bitmask, indices=[])
    assert not logits[0].any()
    wide = numpy.zeros((1, 200), numpy.float32)
    sg.apply_token_bitmask_inplace(wide, numpy.full((1, 4), -1, numpy.int32))
    assert not wide[0, :128].any() and numpy.isinf(wide[0, 128:]).all()
    row = numpy.zeros(64, numpy.float32)
    sg.apply_token_bitmask_inplace(row, numpy.array([1, 2], numpy.int32))
    assert numpy.flatnonzero(~numpy.isinf(row)).tolist() == [0, 33]


def test_mistakes():
    logits = numpy.zeros((2, 64), numpy.float32)
    bitmask = numpy.zeros((2, 2), numpy.int32)
    for wrong in (
        (logits.astype(numpy.int32), bitmask, "no floating-point numbers"),
        (logits, bitmask.astype(numpy.int64), "holds int64"),
        (logits, bitmask[:1], "as many rows"),
        (numpy.zeros((2, 128), numpy.float32)[:, ::2], bitmask, "one after the other"),
    ):
        with pytest.raises(sg.GrammarError, match=wrong[2]):
            sg.apply_token_bitmask_inplace(*wrong[:2])
    for shape in ((-1, 64), (1, 0), (1, -5)):
        for call in (sg.get_bitmask_shape, sg.allocate_token_bitmask):
            with pytest.raises(sg.GrammarError, match="batch_size is -1|vocab_size is (0|-5)"):
                call(*shape)
    wrong = numpy.zeros((1, 2), numpy.uint32)
    with pytest.raises(sg.GrammarError, match="holds uint32; pass .* of int32"):
        sg.reset_token_bitmask(wrong)
    assert not wrong.any()
    with pytest.raises(sg.GrammarError, match="holds list"):
        sg.reset_token_bitmask([0])
    with pytest.raises(sg.GrammarError, match="no row 2"):
        sg.apply_token_bitmask_inplace(logits, bitmask, indices=[2])


def test_torch_bitmasks_are_reset_when_they_are_int32():
    torch = pytest.importorskip("torch")
    bitmask = torch.zeros((1, 2), dtype=torch.int32)
    sg.reset_token_bitmask(bitmask)
    assert bits(bitmask[0]) == list(range(64))
    with pytest.raises(sg.GrammarError, match="holds torch.int64"):
        sg.reset_token_bitmask(bitmask.long())


@pytest.mark.parametrize("path", ["numpy", "torch", "device"])
def test_logits_narrower_than_they_must_be(path):
    """Four words are of 97 to 128 tokens."""
    bitmask = numpy.zeros((2, 4), numpy.int32)
    logits = numpy.zeros((2, 97), numpy.float32)
    narrow = numpy.zeros((2, 96), numpy.float32)
    apply = sg.apply_token_bitmask_inplace
    if path != "numpy":
        torch = pytest.importorskip("torch")
        bitmask, logits, narrow = (torch.from_numpy(array) for array in (bitmask, logits, narrow))
    if path == "device":
        from specdec_grammar.bitmask import _apply_on_device

        def apply(logits, bitmask, vocab_size=None):
            _apply_on_device(logits, bitmask, vocab_size, None)

    with pytest.raises(sg.GrammarError, match="96 columns .* 4 words a row; .* at least 97"):
        apply(narrow, bitmask)
    for vocab_size in (97, 200, 0, -1):
        with pytest.raises(sg.GrammarError, match=f"vocab_size is {vocab_size} .* from 1 to 96"):
            apply(narrow, bitmask, vocab_size=vocab_size)
    assert not narrow.any()
    apply(narrow, bitmask, vocab_size=96)
    apply(logits, bitmask)
    assert numpy.isinf(numpy.asarray(narrow)).all() and numpy.isinf(numpy.asarray(logits)).all()
