"""Random numbers of a kernel or of plain Python: Philox4x32-10, a function of a key and a counter that keeps no state.

Ref.: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Key the generator by seed and
world and give it the episode as a counter: a world then draws the same numbers on any device and in any batch.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NoReturn

from .control import count_while
from .expr import Expr, current, node, type_of
from .scalar import Mask, Scalar, cos, log_of_normal, logical_not, minimum, number, sin, sqrt

Word = Expr | int

_ROUNDS = 10
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_FORK, _FORKED, _MOST_FORKS = 2**24, 2**8, 127  # blocks of a fork, and of each i of it; how many forks
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85  # the golden ratio and sqrt(3) - 1


def signed(n: int) -> int:
    """Return the signed 32-bit integer with the low 32 bits of n, as a constant of the graph has to be."""
    return (n + 0x8000_0000) % 0x1_0000_0000 - 0x8000_0000


def philox(counter: tuple[Word, Word, Word, Word], key: tuple[Word, Word]) -> tuple[Word, Word, Word, Word]:
    """Return four random words. What is constant in counter and key is computed now, not in the kernel."""
    c0, c1, c2, c3 = counter
    for i in range(_ROUNDS):
        k0, k1 = (_add(k, i * step) for k, step in zip(key, _KEY_STEPS, strict=True))
        (high0, low0), (high1, low1) = _multiply(_MULTIPLIERS[0], c0), _multiply(_MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = _xor(_xor(high1, c1), k0), low1, _xor(_xor(high0, c3), k1), low0
    return c0, c1, c2, c3


def _add(a: Word, b: int) -> Word:
    if type(a) is int:
        return signed(a + b)
    return node("iadd", a, signed(b)) if signed(b) else a


def _multiply(a: int, b: Word) -> tuple[Word, Word]:
    """Return the high and the low word of the unsigned product."""
    if type(b) is int:
        product = a * (b % 0x1_0000_0000)
        return signed(product >> 32), signed(product)
    return node("umulh", b, signed(a)), node("imul", b, signed(a))


def _xor(a: Word, b: Word) -> Word:
    if type(a) is int and type(b) is int:
        return signed(a ^ b)
    if type(a) is int:
        a, b = b, a
    return a if type(b) is int and b == 0 else node("ixor", a, b)


class Random:
    """Random numbers drawn one after the other from the blocks of counters (0, c1, c2, c3), (1, c1, c2, c3), ...

    The position in the sequence is fixed when code is traced: the body of a loop draws the same numbers in every
    iteration, unless it draws from a `fork`. If no word is traced, the numbers are Python floats: those that a float64
    kernel draws (normal ones to rounding).
    """

    def __init__(self, key0: Word, key1: Word, c1: Word = 0, c2: Word = 0, c3: Word = 0):
        self._key = key0, key1
        self._counter = c1, c2, c3
        self._first_block: Word = 0
        self._blocks = _FORK
        self._forks = 0
        self._drawn = 0
        self._pair: int | None = None  # where the words of a normal number begin whose twin has not been drawn yet
        self._plain = all(type(x) is int for x in (*self._key, *self._counter))
        self._kept: dict[int, tuple[Word, Word, Word, Word]] = {}  # blocks, of plain words only

    def __getattr__(self, name: str) -> NoReturn:
        known = ", ".join(x for x in dir(type(self)) if not x.startswith("_"))
        raise AttributeError(f"rng has no {name!r}; it has {known}, which draw one number for each world")

    def fork(self) -> Callable[[Any], Random]:
        """Return a function that returns different random numbers for each i = 0, 1, ..., 65535.

        Use it to draw different numbers in the iterations of a loop: `draws = rng.fork()` before the loop, and
        `draws(i).uniform()` in it, where i is the loop's counter. A fork has 1,024 words, of which a number of float32
        takes one and a number of float64 two, and cannot be forked itself.
        """
        if self._blocks != _FORK or self._forks == _MOST_FORKS:
            raise ValueError(
                f"these random numbers cannot be forked {'again' if self._forks else ''}: fork those that a task's "
                f"function is given, {_MOST_FORKS} times at the most"
            )
        self._forks += 1
        start = self._forks * _FORK

        def draws(i: Any) -> Random:
            fork = Random(*self._key, *self._counter)
            fork._blocks = _FORKED
            if type(i) in (int, float):
                if not 0 <= i < _FORK // _FORKED:
                    raise ValueError(f"forks are numbered from 0 to {_FORK // _FORKED - 1}, not {i}")
                fork._first_block = start + int(i) * _FORKED
            else:
                if type_of(i) == "s":
                    i = number(i)
                word = node("f2i", i) if type_of(i) == "f" else i
                fork._first_block = node("iadd", node("imul", word, _FORKED), start)
                fork._plain = False
            return fork

        return draws

    def draw_until(self, draw: Callable[[Random], Any], ok: Callable[[Any], Mask], attempts: int = 1000) -> Any:
        """Return `draw(rng)`, drawn again with new random numbers in worlds where it is not `ok`.

        `draw` returns nested lists or dicts of numbers, and `ok` a mask for them. The last attempt is returned whether
        or not it is ok. Each vector of worlds makes as many attempts as the world in it that needs most.
        """
        if not 1 <= attempts <= _FORK // _FORKED:
            raise ValueError(f"attempts must be from 1 to {_FORK // _FORKED}, not {attempts}")
        draws, before = self.fork(), (self._drawn, self._pair)

        def again(i: Any, _: Any) -> Any:
            return draw(draws(number(i) + 1.0))

        found = count_while(lambda i, drawn: logical_not(ok(drawn)), again, draw(draws(0)), attempts - 1)
        if (self._drawn, self._pair) != before:
            raise ValueError(
                "draw_until hands random numbers to `draw`, new ones for each attempt: draw from those, as in "
                "lambda r: [r.uniform()], not from the generator outside, which gives the same in every attempt"
            )
        return found

    def word(self) -> Word:
        """Draw 32 random bits."""
        self._drawn += 1
        return self._word(self._drawn - 1)

    def _word(self, i: int) -> Word:
        k = i // 4
        # Asked for anew every time: a kept word may belong to a region closed by then, and an equal one costs nothing.
        if k >= self._blocks:
            raise ValueError(f"more than {4 * self._blocks} words of random numbers were drawn from one fork")
        block = self._kept.get(k) or philox((_add(self._first_block, k), *self._counter), self._key)
        if self._plain:
            self._kept = {k: block}
        return block[i % 4]

    def _is_single(self) -> bool:
        return not self._plain and current().dtype == "float32"

    def uniform(self, low: Scalar = 0.0, high: Scalar = 1.0) -> Scalar:
        """Draw one of 2**24 (float32) or 2**53 (float64) evenly spaced numbers in [low, high); `low` if both are equal.

        Bounds may also be scalars of a world, whose order is not checked.
        """
        if isinstance(low, Expr) or isinstance(high, Expr):
            return low + (high - low) * self.uniform()
        single = self._is_single()
        first, last = (_single(float(x)) if single else float(x) for x in (low, high))
        if not first <= last:
            raise ValueError(f"uniform needs low <= high, not [{first}, {last})")
        if first == last:
            self.uniform()  # what is drawn after this does not depend on the bounds
            return first
        k: Scalar
        if single:
            k, bits = node("i2f", node("lshr", self.word(), 8)), 24
        else:
            k, bits = self._integer53(self._drawn), 53
            self._drawn += 2
        x = _fma(k, math.ldexp(last - first, -bits), first)
        # With low = 0 the last number is below high by more than half a spacing; otherwise the sum may round up to
        # high.
        return x if first == 0 else minimum(x, _below(last, single))

    def normal(self) -> Scalar:
        """Draw a standard normal number, by the Box-Muller transform: up to 6.7 (float32) or 8.6 (float64) in size."""
        single = self._is_single()
        twin = self._pair is not None
        if self._pair is None:
            first = self._pair = self._drawn
            self._drawn += 2 if single else 4
        else:
            first, self._pair = self._pair, None
        # Half a step up, so that 0 is left out; all bits count where the number is small, in the tails.
        u: Scalar
        angle: Scalar
        if single:
            u = node("fma", node("u2f", self._word(first)), 2.0**-32, 2.0**-33)
            angle = node("i2f", self._word(first + 1)) * (math.pi * 2.0**-31)
        else:
            u = _fma(self._integer53(first), 2.0**-53, 2.0**-54)
            angle = self._integer53(first + 2) * (math.pi * 2.0**-52)
        radius = sqrt(-2.0 * log_of_normal(u))
        return radius * (sin(angle) if twin else cos(angle))

    def exponential(self, scale: Scalar = 1.0) -> Scalar:
        """Draw from the exponential distribution of mean `scale`: up to 22.9 (float32) or 37.4 (float64) times it."""
        u: Scalar
        if self._is_single():
            u = node("fma", node("u2f", self.word()), 2.0**-32, 2.0**-33)
        else:
            u = _fma(self._integer53(self._drawn), 2.0**-53, 2.0**-54)
            self._drawn += 2
        return -log_of_normal(u) * scale

    def integers(self, low: int, high: int | None = None) -> Scalar:
        """Draw a whole number from low up to but not including high, or from 0 up to low: the same in both precisions.

        The result is a float. All are equally likely, to one in 2**32 / (high - low). Raises TypeError for bounds that
        are not constant whole numbers, ValueError if there is no number between them, or for bounds beyond 2**24, up to
        which float32 has all whole numbers.
        """
        low, high = (0, operator.index(low)) if high is None else (operator.index(low), operator.index(high))
        if not low < high:
            raise ValueError(f"integers needs low < high, not [{low}, {high})")
        if max(-low, high) > 2**24:
            raise ValueError(f"integers draws from -2**24 to 2**24, not from [{low}, {high})")
        k, _ = _multiply(high - low, self.word())
        return float(k + low) if type(k) is int else node("i2f", k) + float(low)

    def _integer53(self, i: int) -> Scalar:
        """Return 27 bits of one word and 26 of the next as a whole number, exactly."""
        upper, lower = (_upper_bits(self._word(i + j), 27 - j) for j in range(2))
        return _fma(upper, 2.0**26, lower)


def _upper_bits(word: Word, n: int) -> Scalar:
    """Return the upper n bits of a word, as a number."""
    return float(word % 2**32 >> 32 - n) if type(word) is int else node("i2f", node("lshr", word, 32 - n))


def _fma(a: Scalar, b: float, c: Scalar) -> Scalar:
    """Compute a b + c, rounded once."""
    return float(Fraction(a) * Fraction(b) + Fraction(c)) if type(a) is type(c) is float else node("fma", a, b, c)


def _single(x: float) -> float:
    """Round x to float32."""
    (rounded,) = struct.unpack("f", struct.pack("f", x))
    return float(rounded)


def _below(x: float, single: bool) -> float:
    """Return the next number below x in the precision of the kernel."""
    if not single:
        return math.nextafter(x, -math.inf)
    if x == 0:
        return -(2.0**-149)
    (bits,) = struct.unpack("i", struct.pack("f", x))  # sign and magnitude: one less in size, or more if negative
    (below,) = struct.unpack("f", struct.pack("i", bits - 1 if x > 0 else bits + 1))
    return float(below)
