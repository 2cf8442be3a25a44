#include "warp.h"

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <memory>

namespace sass {
namespace {

float as_float(u32 x) { float y; std::memcpy(&y, &x, 4); return y; }
u32 as_bits(float x) { u32 y; std::memcpy(&y, &x, 4); return y; }
double as_double(u64 x) { double y; std::memcpy(&y, &x, 8); return y; }
u64 as_bits(double x) { u64 y; std::memcpy(&y, &x, 8); return y; }

// Arithmetic that gives NaN gives this one.
u32 given(float x) { return x != x ? 0x7fffffffu : as_bits(x); }
u64 given(double x) { return x != x ? 0x7fffffffffffffffull : as_bits(x); }

float flushed(float x) { return std::fabs(x) < 1.17549435e-38f ? std::copysign(0.0f, x) : x; }

template <class T> u8 outcome(T a, T b) { return a < b ? LESS : a > b ? GREATER : a == b ? EQUAL : UNORDERED; }

// Of two numbers one of which is NaN, the other; -0 is less than 0.
template <class T> bool less(T a, T b) { return a < b || (a == b && std::signbit(a) && !std::signbit(b)); }
float least(float a, float b) { return a != a ? b : b != b ? a : less(b, a) ? b : a; }
float most(float a, float b) { return a != a ? b : b != b ? a : less(a, b) ? b : a; }

// The nearest whole number that there is; 0 for NaN, from double the least.
int32_t truncated(double x, int32_t nan) {
  if (x != x) return nan;
  return x <= -2147483648.0 ? INT32_MIN : x >= 2147483647.0 ? INT32_MAX : static_cast<int32_t>(x);
}

// Approximations, of which NVIDIA says only that they are good to an ulp or so: what ptxas makes of them is exact.
float reciprocal(float x) { return flushed(static_cast<float>(1.0 / static_cast<double>(flushed(x)))); }
float reciprocal_root(float x) { return flushed(static_cast<float>(1.0 / std::sqrt(static_cast<double>(flushed(x))))); }

// The upper halves of numbers from the upper halves of numbers, subnormal ones as 0.
double of_upper(u32 x) { return as_double(static_cast<u64>((x & 0x7ff00000) ? x : x & 0x80000000) << 32); }
u32 upper(double x) {
  u32 half = static_cast<u32>(given(x) >> 32);
  return (half & 0x7ff00000) ? half : half & 0x80000000;
}

// Whether a / b is left to the slow path of a division: anywhere near the ends of the exponents, and for 0, whose sign
// the fast one would lose. The chip's own rule is not published; any that is as careful gives the same quotients.
bool needs_care(u32 a, u32 b) {
  int of_a = a >> 23 & 255, of_b = b >> 23 & 255;
  return of_b < 2 || of_b > 252 || of_a < 25 || of_a == 255 || of_a - of_b > 125 || of_a - of_b < -125;
}

u32 table3(u32 a, u32 b, u32 c, u32 table) {
  u32 out = 0;
  for (int k = 0; k < 8; k++)
    if (table >> k & 1) out |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
  return out;
}

struct Rounding {
  explicit Rounding(int mode) {
    static const int modes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
    std::fesetround(modes[mode]);
  }
  ~Rounding() { std::fesetround(FE_TONEAREST); }
};

}  // namespace

Warp::Warp(const Launch& launch, u32 block, u32 first_thread, u32 threads, std::vector<u8>* shared)
    : launch_(launch), block_(block), first_thread_(first_thread), local_(LANES * static_cast<size_t>(launch.stack), 0xff),
      shared_(shared) {
  for (auto& row : registers_) row.fill(~0u);  // what nobody wrote is all ones: as a float, NaN
  registers_[ZERO].fill(0);
  uniform_.fill(~0u);
  uniform_[ZERO] = 0;
  predicates_.fill(~0u);
  uniform_predicates_.fill(~0u);
  places_.fill(0);
  waits_.fill(-1);
  started_ = current_ = threads == LANES ? ~0u : (1u << threads) - 1;
}

const Instruction& Warp::next() {
  if (!current_) choose();
  return launch_.code[place() / SIZE];
}

void Warp::choose() {
  u32 ready = 0, least = ~0u;
  for (int l = 0; l < LANES; l++)
    if (((started_ & ~exited_) >> l & 1) && waits_[l] < 0) {
      if (places_[l] < least) least = places_[l], ready = 0;
      if (places_[l] == least) ready |= 1u << l;
    }
  if (!ready) throw Fault(places_[__builtin_ctz(started_ & ~exited_)], "all threads wait for each other");
  current_ = ready;
}

// Let those go on who have all come to their barrier.
void Warp::release() {
  for (int l = 0; l < LANES; l++) {
    if (waits_[l] < 0 || (exited_ >> l & 1)) continue;
    int barrier = waits_[l];
    u32 others = barriers_[barrier][l] & ~exited_;
    bool all = true;
    for (int j = 0; j < LANES; j++)
      if (others >> j & 1) all &= waits_[j] == barrier && places_[j] == places_[l];
    if (!all) continue;
    for (int j = 0; j < LANES; j++)
      if (others >> j & 1) waits_[j] = -1, places_[j] += SIZE;
  }
}

// -- operands ---------------------------------------------------------------------------------------------------------

u32 Warp::constant(const Instruction& x, const Operand& o) const {
  constexpr u32 BLOCK_SIZE = 0x0, STACK_POINTER = 0x28, DESCRIPTOR = 0x208, PARAMETERS = 0x210;
  if (o.index == 0) {
    if (o.value == BLOCK_SIZE) return launch_.threads;
    if (o.value == STACK_POINTER) return STACK_TOP;
    if (o.value / 8 == DESCRIPTOR / 8) return 0;
    u64 k = (o.value - PARAMETERS) / 8;
    if (o.value >= PARAMETERS && k < launch_.parameter_count)
      return static_cast<u32>(launch_.parameters[k] >> (o.value & 4 ? 32 : 0));
  } else if (o.index == 4 && o.value / 8 < launch_.bank4_count) {
    return static_cast<u32>(launch_.bank4[o.value / 8] >> (o.value & 4 ? 32 : 0));
  }
  throw Fault(x.address, "no such constant");
}

const u32* Warp::read(const Instruction& x, int k, Row& room) const {
  const Operand& o = x.operands[k];
  switch (o.kind) {
    case Kind::REGISTER: return registers_[o.index].data();
    case Kind::UNIFORM: room.fill(uniform_[o.index]); break;
    case Kind::NUMBER: room.fill(o.value); break;
    case Kind::CONSTANT: room.fill(constant(x, o)); break;
    default: throw Fault(x.address, "an operand of a kind that does not fit");
  }
  return room.data();
}

// As whole numbers.
const u32* Warp::whole(const Instruction& x, int k, Row& room) const {
  const u32* row = read(x, k, room);
  u8 flags = x.operands[k].flags;
  if (flags & INVERT) for (int l = 0; l < LANES; l++) room[l] = ~row[l];
  else if (flags & NEGATE) for (int l = 0; l < LANES; l++) room[l] = 0 - row[l];
  else return row;
  return room.data();
}

// As float32; a number in the code has its sign.
const u32* Warp::single(const Instruction& x, int k, Row& room) const {
  const u32* row = read(x, k, room);
  const Operand& o = x.operands[k];
  if (!o.flags || o.kind == Kind::NUMBER) return row;
  u32 keep = o.flags & ABSOLUTE ? 0x7fffffff : ~0u, turn = o.flags & NEGATE ? 0x80000000 : 0;
  for (int l = 0; l < LANES; l++) room[l] = (row[l] & keep) ^ turn;
  return room.data();
}

// As 64 bits: a pair of registers, or a number that is the upper half of a float64.
void Warp::read64(const Instruction& x, int k, std::array<u64, LANES>& out) const {
  const Operand& o = x.operands[k];
  if (o.kind == Kind::REGISTER) {
    const Row &low = registers_[o.index], &high = registers_[o.index == ZERO ? ZERO : o.index + 1];
    for (int l = 0; l < LANES; l++) out[l] = low[l] | static_cast<u64>(high[l]) << 32;
  } else if (o.kind == Kind::UNIFORM) {
    out.fill(uniform_[o.index] | static_cast<u64>(uniform_[o.index == ZERO ? ZERO : o.index + 1]) << 32);
  } else if (o.kind == Kind::CONSTANT) {
    Operand next = o;
    next.value += 4;
    out.fill(constant(x, o) | static_cast<u64>(constant(x, next)) << 32);
  } else if (o.kind == Kind::NUMBER) {
    out.fill(static_cast<u64>(o.value) << 32);
  } else {
    throw Fault(x.address, "an operand of a kind that does not fit");
  }
}

void Warp::doubles(const Instruction& x, int k, std::array<double, LANES>& out) const {
  std::array<u64, LANES> bits;
  read64(x, k, bits);
  const Operand& o = x.operands[k];
  bool plain = o.kind == Kind::NUMBER;
  u64 keep = !plain && o.flags & ABSOLUTE ? ~(1ull << 63) : ~0ull, turn = !plain && o.flags & NEGATE ? 1ull << 63 : 0;
  for (int l = 0; l < LANES; l++) out[l] = as_double((bits[l] & keep) ^ turn);
}

u32 Warp::truth(const Instruction& x, int k) const {
  const Operand& o = x.operands[k];
  if (o.kind != Kind::PREDICATE && o.kind != Kind::UNIFORM_PREDICATE) throw Fault(x.address, "not a truth value");
  u32 bits = (o.kind == Kind::PREDICATE ? predicates_ : uniform_predicates_)[o.index];
  return o.flags & INVERT ? ~bits : bits;
}

void Warp::write(const Instruction& x, int k, const u32* row, u32 threads) {
  const Operand& o = x.operands[k];
  if (o.index == ZERO) return;
  if (o.kind == Kind::UNIFORM) {
    if (threads) uniform_[o.index] = row[__builtin_ctz(threads)];
    return;
  }
  if (o.kind != Kind::REGISTER) throw Fault(x.address, "not a register");
  Row& to = registers_[o.index];
  if (threads == ~0u) std::copy_n(row, LANES, to.begin());
  else for (int l = 0; l < LANES; l++) to[l] = threads >> l & 1 ? row[l] : to[l];
}

void Warp::write_wide(const Instruction& x, int k, const u64* row, u32 threads) {
  const Operand& o = x.operands[k];
  if (o.index == ZERO) return;
  Row low, high;
  for (int l = 0; l < LANES; l++) low[l] = static_cast<u32>(row[l]), high[l] = static_cast<u32>(row[l] >> 32);
  write(x, k, low.data(), threads);
  if (o.kind == Kind::UNIFORM) {
    if (threads) uniform_[o.index + 1] = high[__builtin_ctz(threads)];
  } else {
    for (int l = 0; l < LANES; l++)
      if (threads >> l & 1) registers_[o.index + 1][l] = high[l];
  }
}

void Warp::write_truth(const Instruction& x, int k, u32 bits, u32 threads) {
  const Operand& o = x.operands[k];
  if (o.index == TRUE) return;
  if (o.kind == Kind::UNIFORM_PREDICATE) {
    if (threads) uniform_predicates_[o.index] = bits >> __builtin_ctz(threads) & 1 ? ~0u : 0;
  } else if (o.kind == Kind::PREDICATE) {
    predicates_[o.index] = (predicates_[o.index] & ~threads) | (bits & threads);
  } else {
    throw Fault(x.address, "not a truth value");
  }
}

// -- computing --------------------------------------------------------------------------------------------------------

template <class F> void Warp::floats(const Instruction& x, u32 threads, int count, F f) {
  Row room[3], out;
  const u32* given_rows[3] = {registers_[ZERO].data(), registers_[ZERO].data(), registers_[ZERO].data()};
  for (int k = 0; k < count; k++) given_rows[k] = single(x, k + 1, room[k]);
  const u32 *a = given_rows[0], *b = given_rows[1], *c = given_rows[2];
  if (x.flags & FLUSH)
    for (int l = 0; l < LANES; l++)
      out[l] = given(flushed(f(flushed(as_float(a[l])), flushed(as_float(b[l])), flushed(as_float(c[l])))));
  else
    for (int l = 0; l < LANES; l++) out[l] = given(f(as_float(a[l]), as_float(b[l]), as_float(c[l])));
  write(x, 0, out.data(), threads);
}

template <class F> void Warp::wholes(const Instruction& x, u32 threads, int first, int count, F f) {
  Row room[3], out;
  const u32* rows[3] = {registers_[ZERO].data(), registers_[ZERO].data(), registers_[ZERO].data()};
  for (int k = 0; k < count; k++) rows[k] = whole(x, first + k, room[k]);
  for (int l = 0; l < LANES; l++) out[l] = f(rows[0][l], rows[1][l], rows[2][l]);
  write(x, first - 1, out.data(), threads);
}

template <class F> void Warp::wide(const Instruction& x, u32 threads, F f) {
  std::array<double, LANES> a, b{}, c{};
  std::array<u64, LANES> out;
  doubles(x, 1, a);
  if (x.count > 2) doubles(x, 2, b);
  if (x.count > 3) doubles(x, 3, c);
  for (int l = 0; l < LANES; l++) out[l] = given(f(a[l], b[l], c[l]));
  write_wide(x, 0, out.data(), threads);
}

// Sums and products that are rounded down, up or towards zero: by the machine's own modes, which the compiler must not
// see through.
__attribute__((noinline)) void Warp::rounded(const Instruction& x, u32 threads) {
  Rounding mode(x.rounding);
  auto sum = [](auto a, auto b) { volatile decltype(a) p = a, q = b; volatile decltype(a) r = p + q; return r + 0; };
  auto product = [](auto a, auto b) { volatile decltype(a) p = a, q = b; volatile decltype(a) r = p * q; return r * 1; };
  auto both = [](auto a, auto b, auto c) {
    volatile decltype(a) p = a, q = b, r = c;
    volatile decltype(a) s = std::fma(decltype(a)(p), decltype(a)(q), decltype(a)(r));
    return decltype(a)(s);
  };
  switch (x.operation) {
    case FADD: return floats(x, threads, 2, [&](float a, float b, float) { return static_cast<float>(sum(a, b)); });
    case FMUL: return floats(x, threads, 2, [&](float a, float b, float) { return static_cast<float>(product(a, b)); });
    case FFMA: return floats(x, threads, 3, [&](float a, float b, float c) { return both(a, b, c); });
    case DADD: return wide(x, threads, [&](double a, double b, double) { return static_cast<double>(sum(a, b)); });
    case DMUL: return wide(x, threads, [&](double a, double b, double) { return static_cast<double>(product(a, b)); });
    case DFMA: return wide(x, threads, [&](double a, double b, double c) { return both(a, b, c); });
    default: throw Fault(x.address, "does not round so");
  }
}

void Warp::compute(const Instruction& x, u32 threads) {
  Row room[4], out;
  const bool carry = x.flags & CARRY, is_unsigned = x.flags & UNSIGNED;
  // A comparison's two results: with the condition before, and its opposite with the same.
  auto compared = [&](auto outcomes, u32 before) {
    u32 bits = 0;
    for (int l = 0; l < LANES; l++) bits |= static_cast<u32>((outcomes(l) & x.compare) != 0) << l;
    return x.flags & OR ? std::pair(bits | before, ~bits | before) : std::pair(bits & before, ~bits & before);
  };
  auto write_both = [&](std::pair<u32, u32> bits) {
    write_truth(x, 0, bits.first, threads);
    write_truth(x, 1, bits.second, threads);
  };
  auto least_of = [&](bool want_least) {  // of float64, as which of the two is to be taken, and whether neither is
    std::array<double, LANES> a, b;
    doubles(x, 2, a);
    doubles(x, 3, b);
    u32 first = 0, neither = 0;
    for (int l = 0; l < LANES; l++) {
      bool take = b[l] != b[l] || (want_least ? less(a[l], b[l]) : less(b[l], a[l]));
      first |= static_cast<u32>(take && a[l] == a[l]) << l;
      neither |= static_cast<u32>(a[l] != a[l] && b[l] != b[l]) << l;
    }
    write_both({first, neither});
  };
  // Where the truth values of an operation's carries are: after its result, and at its end.
  auto is_truth = [](const Operand& o) { return o.kind == Kind::PREDICATE || o.kind == Kind::UNIFORM_PREDICATE; };
  const bool gives_carry = is_truth(x.operands[1]);
  const int first = gives_carry ? 2 : 1;

  switch (x.operation) {
    case FADD: return x.rounding ? rounded(x, threads) : floats(x, threads, 2, [](float a, float b, float) { return a + b; });
    case FMUL: return x.rounding ? rounded(x, threads) : floats(x, threads, 2, [](float a, float b, float) { return a * b; });
    case FFMA: return x.rounding ? rounded(x, threads) : floats(x, threads, 3, [](float a, float b, float c) { return __builtin_fmaf(a, b, c); });
    case DADD: return x.rounding ? rounded(x, threads) : wide(x, threads, [](double a, double b, double) { return a + b; });
    case DMUL: return x.rounding ? rounded(x, threads) : wide(x, threads, [](double a, double b, double) { return a * b; });
    case DFMA: return x.rounding ? rounded(x, threads) : wide(x, threads, [](double a, double b, double c) { return __builtin_fma(a, b, c); });
    case FMNMX: {
      const u32 *a = single(x, 1, room[0]), *b = single(x, 2, room[1]), want_least = truth(x, 3);
      for (int l = 0; l < LANES; l++) {
        float p = as_float(a[l]), q = as_float(b[l]);
        bool nan = (x.flags & PROPAGATE_NAN) && (p != p || q != q);
        out[l] = nan ? 0x7fffffffu : given(want_least >> l & 1 ? least(p, q) : most(p, q));
      }
      return write(x, 0, out.data(), threads);
    }
    case FSEL: case SEL: {
      bool is_float = x.operation == FSEL;
      const u32* a = is_float ? single(x, 1, room[0]) : whole(x, 1, room[0]);
      const u32* b = is_float ? single(x, 2, room[1]) : whole(x, 2, room[1]);
      u32 bits = truth(x, 3);
      for (int l = 0; l < LANES; l++) out[l] = bits >> l & 1 ? a[l] : b[l];
      return write(x, 0, out.data(), threads);
    }
    case FSETP: case FSET: {
      const int k = x.operation == FSETP ? 2 : 1;
      const u32 *a = single(x, k, room[0]), *b = single(x, k + 1, room[1]);
      auto bits = compared([&](int l) {
        float p = as_float(a[l]), q = as_float(b[l]);
        return x.flags & FLUSH ? outcome(flushed(p), flushed(q)) : outcome(p, q);
      }, truth(x, k + 2));
      if (k == 2) return write_both(bits);
      for (int l = 0; l < LANES; l++) out[l] = bits.first >> l & 1 ? 0x3f800000 : 0;
      return write(x, 0, out.data(), threads);
    }
    case DSETP: {
      std::array<double, LANES> a, b;
      doubles(x, 2, a);
      doubles(x, 3, b);
      return write_both(compared([&](int l) { return outcome(a[l], b[l]); }, truth(x, 4)));
    }
    case DMIN: return least_of(true);
    case DMAX: return least_of(false);
    case FCHK: {
      const u32 *a = single(x, 1, room[0]), *b = single(x, 2, room[1]);
      u32 bits = 0;
      for (int l = 0; l < LANES; l++) bits |= static_cast<u32>(needs_care(a[l], b[l])) << l;
      return write_truth(x, 0, bits, threads);
    }
    case FRND: return floats(x, threads, 1, [](float a, float, float) { return std::nearbyint(a); });
    case FRND64: return wide(x, threads, [](double a, double, double) { return std::nearbyint(a); });
    case RCP: return floats(x, threads, 1, [](float a, float, float) { return reciprocal(a); });
    case RSQ: return floats(x, threads, 1, [](float a, float, float) { return reciprocal_root(a); });
    case RCP64H: case RSQ64H: {
      const u32* a = single(x, 1, room[0]);
      for (int l = 0; l < LANES; l++) {
        double y = of_upper(a[l]);
        out[l] = upper(x.operation == RCP64H ? 1.0 / y : 1.0 / std::sqrt(y));
      }
      return write(x, 0, out.data(), threads);
    }
    case I2F: return wholes(x, threads, 1, 1, [=](u32 a, u32, u32) {
      return as_bits(is_unsigned ? static_cast<float>(a) : static_cast<float>(static_cast<int32_t>(a)));
    });
    case I2D: {
      const u32* a = whole(x, 1, room[0]);
      std::array<u64, LANES> bits;
      for (int l = 0; l < LANES; l++) bits[l] = as_bits(is_unsigned ? static_cast<double>(a[l]) : static_cast<int32_t>(a[l]));
      return write_wide(x, 0, bits.data(), threads);
    }
    case F2I: {
      const u32* a = single(x, 1, room[0]);
      for (int l = 0; l < LANES; l++) out[l] = truncated(as_float(a[l]), 0);
      return write(x, 0, out.data(), threads);
    }
    case D2I: {
      std::array<double, LANES> a;
      doubles(x, 1, a);
      for (int l = 0; l < LANES; l++) out[l] = truncated(a[l], INT32_MIN);
      return write(x, 0, out.data(), threads);
    }
    case MOV: return write(x, 0, whole(x, 1, room[0]), threads);
    case CS2R: {
      std::array<u64, LANES> zero{};
      if (x.operands[1].index != 2) throw Fault(x.address, "another special register than 0");
      return write_wide(x, 0, zero.data(), threads);
    }
    case P2R: {
      const u32 *kept = whole(x, 2, room[0]), *taken = whole(x, 3, room[1]);
      for (int l = 0; l < LANES; l++) {
        u32 bits = 0;
        for (u32 k = 0; k < TRUE; k++) bits |= (predicates_[k] >> l & 1) << k;
        out[l] = (bits & taken[l]) | (kept[l] & ~taken[l]);
      }
      return write(x, 0, out.data(), threads);
    }
    case B2R: return write_truth(x, 1, says ? threads : 0, threads);
    case R2UR: return write(x, 0, whole(x, 1, room[0]), threads);
    case S2R: {
      const int which = x.operands[1].index;  // of what SPECIAL in decode.py names
      if (which != 0 && which != 1 && which != 4) throw Fault(x.address, "another special register");
      for (int l = 0; l < LANES; l++) out[l] = which == 0 ? first_thread_ + l : which == 1 ? block_ : 0;
      return write(x, 0, out.data(), threads);
    }
    case IADD3: {
      // A sum of three carries up to twice, into one truth value or two.
      const bool twice = gives_carry && is_truth(x.operands[2]);
      const int k = first + twice;
      const u32 *a = whole(x, k, room[0]), *b = whole(x, k + 1, room[1]), *c = whole(x, k + 2, room[2]);
      const u32 more = carry ? truth(x, k + 3) : 0, again = carry && x.count > k + 4 ? truth(x, k + 4) : 0;
      u32 once = 0, second = 0;
      for (int l = 0; l < LANES; l++) {
        u64 sum = static_cast<u64>(a[l]) + b[l] + c[l] + (more >> l & 1) + (again >> l & 1);
        const u32 given_words[] = {a[l], b[l], c[l]};
        for (int j = 0; j < 3; j++)  // -0 is ~0 + 1, which carries
          if (x.operands[k + j].flags & NEGATE && given_words[j] == 0) sum += 1ull << 32;
        out[l] = static_cast<u32>(sum);
        once |= static_cast<u32>((sum >> 32) >= 1) << l;
        second |= static_cast<u32>((sum >> 32) >= 2) << l;
      }
      write(x, 0, out.data(), threads);
      if (gives_carry) write_truth(x, 1, once, threads);
      if (twice) write_truth(x, 2, second, threads);
      return;
    }
    case VIADD: return wholes(x, threads, 1, 2, [](u32 a, u32 b, u32) { return a + b; });
    case VIMNMX: case VIADDMNMX: {
      const bool adds = x.operation == VIADDMNMX;
      const u32 *a = whole(x, 1, room[0]), *b = whole(x, 2, room[1]);
      const u32 *c = adds ? whole(x, 3, room[2]) : b, want_least = truth(x, adds ? 4 : 3);
      for (int l = 0; l < LANES; l++) {
        const u32 turn = is_unsigned ? 0x80000000 : 0;  // as signed numbers in the order of unsigned ones
        auto p = static_cast<int32_t>((adds ? a[l] + b[l] : a[l]) ^ turn), q = static_cast<int32_t>(c[l] ^ turn);
        out[l] = static_cast<u32>(want_least >> l & 1 ? std::min(p, q) : std::max(p, q)) ^ turn;
      }
      return write(x, 0, out.data(), threads);
    }
    case LEA: {
      const u32 *a = whole(x, first, room[0]), *b = whole(x, first + 1, room[1]), *shift = whole(x, first + 2, room[2]);
      const u32 more = carry ? truth(x, first + 3) : 0;
      u32 over = 0;
      if (gives_carry && (x.operands[first].flags & INVERT || x.operands[first + 1].flags))
        throw Fault(x.address, "a carry of a difference");
      const bool negative = x.operands[first].flags & NEGATE;
      for (int l = 0; l < LANES; l++) {
        const u32 shifted = a[l] << shift[l];
        u64 sum = static_cast<u64>(shifted) + b[l] + (more >> l & 1);
        if (negative && shifted == 0) sum += 1ull << 32;  // as of IADD3
        out[l] = static_cast<u32>(sum);
        over |= static_cast<u32>((sum >> 32) >= 1) << l;
      }
      write(x, 0, out.data(), threads);
      if (gives_carry) write_truth(x, 1, over, threads);
      return;
    }
    case LEAHI: {
      const u32 *a = whole(x, 1, room[0]), *b = whole(x, 2, room[1]), *c = whole(x, 3, room[2]), *shift = whole(x, 4, room[3]);
      u32 more = carry ? truth(x, 5) : 0;
      for (int l = 0; l < LANES; l++) {
        u64 wide_a = static_cast<u64>(c[l]) << 32 | a[l];
        out[l] = static_cast<u32>((wide_a << shift[l]) >> 32) + b[l] + (more >> l & 1);
      }
      return write(x, 0, out.data(), threads);
    }
    case SHL: case SHR: case SAR: case SHL64HI: {
      const u32 *a = whole(x, 1, room[0]), *shift = whole(x, 2, room[1]), *c = whole(x, 3, room[2]);
      // Each shifts two words and gives one; where that is not all of it, the other must be 0.
      const Operand& other = x.operands[x.operation == SHL ? 3 : 1];
      if (x.operation != SHL64HI && other.index != ZERO) throw Fault(x.address, "a shift of two words");
      for (int l = 0; l < LANES; l++) {
        u32 s = shift[l];
        switch (x.operation) {
          case SHL: out[l] = s < 32 ? a[l] << s : 0; break;
          case SHR: out[l] = s < 32 ? c[l] >> s : 0; break;
          case SAR: out[l] = static_cast<u32>(static_cast<int32_t>(c[l]) >> std::min(s, 31u)); break;
          default: out[l] = static_cast<u32>(((static_cast<u64>(c[l]) << 32 | a[l]) << std::min(s, 63u)) >> 32);
        }
      }
      return write(x, 0, out.data(), threads);
    }
    case SHR64: {
      const u32 *a = whole(x, 1, room[0]), *shift = whole(x, 2, room[1]), *c = whole(x, 3, room[2]);
      for (int l = 0; l < LANES; l++)
        out[l] = static_cast<u32>((static_cast<u64>(c[l]) << 32 | a[l]) >> std::min(shift[l], 63u));
      return write(x, 0, out.data(), threads);
    }
    case PRMT: {  // four of eight bytes, or of one the sign only
      const u32 *a = whole(x, 1, room[0]), *chosen = whole(x, 2, room[1]), *c = whole(x, 3, room[2]);
      for (int l = 0; l < LANES; l++) {
        const u64 bytes = static_cast<u64>(c[l]) << 32 | a[l];
        out[l] = 0;
        for (int k = 0; k < 4; k++) {
          const u32 which = chosen[l] >> 4 * k & 15, byte = bytes >> 8 * (which & 7) & 255;
          out[l] |= (which & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * k;
        }
      }
      return write(x, 0, out.data(), threads);
    }
    case SHFL: {  // of the whole warp: what another thread has
      if (threads != ~0u) throw Fault(x.address, "a shuffle of some threads");
      const u32 *a = whole(x, 2, room[0]), *distance = whole(x, 3, room[1]);
      if (x.operands[4].value != 0x1f) throw Fault(x.address, "a shuffle within parts of a warp");
      for (int l = 0; l < LANES; l++) out[l] = a[(l ^ distance[l]) % LANES];
      write_truth(x, 0, ~0u, threads);
      return write(x, 1, out.data(), threads);
    }
    case LOP3: {
      const int k = x.operands[0].kind == Kind::PREDICATE ? 1 : 0;
      const u32 *a = whole(x, k + 1, room[0]), *b = whole(x, k + 2, room[1]), *c = whole(x, k + 3, room[2]);
      u32 bits = x.operands[k + 4].value, some = truth(x, k + 5);
      for (int l = 0; l < LANES; l++) out[l] = table3(a[l], b[l], c[l], bits);
      for (int l = 0; l < LANES; l++) some |= static_cast<u32>(out[l] != 0) << l;
      write(x, k, out.data(), threads);
      if (k) write_truth(x, 0, some, threads);
      return;
    }
    case PLOP3: {
      u32 a = truth(x, 2), b = truth(x, 3), c = truth(x, 4);
      return write_both({table3(a, b, c, x.operands[5].value), table3(a, b, c, x.operands[6].value)});
    }
    case ISETP: {
      const u32 *a = whole(x, 2, room[0]), *b = whole(x, 3, room[1]);
      u32 lower = carry ? truth(x, 5) : 0;  // the outcome for the lower words counts where the upper are equal
      auto bits = compared([&](int l) -> u8 {
        if (carry && a[l] == b[l]) return lower >> l & 1 ? x.compare : 0;
        return is_unsigned ? outcome(a[l], b[l]) : outcome(static_cast<int32_t>(a[l]), static_cast<int32_t>(b[l]));
      }, truth(x, 4));
      return write_both(bits);
    }
    case IMAD: {
      const u32 *a = whole(x, 1, room[0]), *b = whole(x, 2, room[1]), *c = whole(x, 3, room[2]);
      u32 more = carry ? truth(x, 4) : 0;
      for (int l = 0; l < LANES; l++) out[l] = a[l] * b[l] + c[l] + (more >> l & 1);
      return write(x, 0, out.data(), threads);
    }
    case IMADHI: return wholes(x, threads, 1, 3, [](u32 a, u32 b, u32 c) {
      return static_cast<u32>(static_cast<u64>(a) * b >> 32) + c;
    });
    case IMADWIDE: {
      const u32 *a = whole(x, first, room[0]), *b = whole(x, first + 1, room[1]);
      const u32 more = carry ? truth(x, first + 3) : 0;
      std::array<u64, LANES> c, sum;
      read64(x, first + 2, c);
      u32 over = 0;
      for (int l = 0; l < LANES; l++) {
        const u64 product = is_unsigned ? static_cast<u64>(a[l]) * b[l]
                                        : static_cast<u64>(static_cast<int64_t>(static_cast<int32_t>(a[l])) *
                                                           static_cast<int32_t>(b[l]));
        sum[l] = c[l] + product + (more >> l & 1);
        over |= static_cast<u32>(sum[l] < c[l] || (sum[l] == c[l] && product)) << l;
      }
      write_wide(x, 0, sum.data(), threads);
      if (gives_carry) write_truth(x, 1, over, threads);
      return;
    }
    case LDC: {
      if (x.width == 4) return write(x, 0, whole(x, 1, room[0]), threads);
      std::array<u64, LANES> value;
      read64(x, 1, value);
      return write_wide(x, 0, value.data(), threads);
    }
    default: throw Fault(x.address, "not an operation that computes");
  }
}

// -- memory -----------------------------------------------------------------------------------------------------------

u8* Warp::place_of(const Instruction& x, u64 address, bool store) const {
  if (address % x.width) throw Fault(x.address, "misaligned: " + std::to_string(address));
  for (u64 k = 0; k < launch_.range_count; k++) {
    const Range& range = launch_.ranges[k];
    if (address >= range.begin && address + x.width <= range.end && (range.writable || !store))
      return reinterpret_cast<u8*>(address);
  }
  throw Fault(x.address, std::string(store ? "a store into" : "a load from") + " no buffer: " + std::to_string(address));
}

void Warp::memory(const Instruction& x, u32 threads, std::vector<Touched>* touched) {
  const bool store = x.operation == STG || x.operation == STL || x.operation == STS;
  const bool local = x.operation == LDL || x.operation == STL, shared = x.operation == LDS || x.operation == STS;
  const Operand &at = x.operands[store ? 0 : 1], &data = x.operands[store ? 1 : 0];
  const u32 bottom = STACK_TOP - launch_.stack, words = (x.width + 3u) / 4, size = std::min<u32>(x.width, 4);
  const u32 base_register = at.index & 255, of_warp = uniform_[at.index >> 8];
  const size_t step = local ? 4 * LANES : 4;  // local memory: one word of all threads is a line
  auto touch = [&](u64 line, u32 sectors) {
    if (!touched) return;
    for (auto& t : *touched)
      if (t.line == line) return void(t.sectors |= sectors);
    touched->push_back({line, sectors});
  };
  for (int l = 0; l < LANES; l++) {
    if (!(threads >> l & 1)) continue;
    u8* p;
    if (local) {
      u32 address = registers_[base_register][l] + of_warp + at.value;
      if (address % x.width || address < bottom || address + x.width > STACK_TOP)
        throw Fault(x.address, std::string(address % x.width ? "misaligned: byte " : "byte ") + std::to_string(static_cast<int64_t>(address) - bottom) + " of a stack of " +
                                   std::to_string(launch_.stack));
      p = &local_[((address - bottom) / 4 * LANES + l) * 4 + address % 4];
      for (u32 k = 0; k < words; k++) touch((address - bottom) / 4 + k, 1u << (l >> 3));
    } else if (shared) {
      const u32 address = registers_[base_register][l] + of_warp + at.value;
      if (!shared_ || address % x.width || address < SHARED || address + x.width > SHARED + shared_->size())
        throw Fault(x.address, "byte " + std::to_string(static_cast<int64_t>(address) - SHARED) + " of shared memory");
      p = &(*shared_)[address - SHARED];
    } else {
      const u64 base = registers_[base_register][l] | static_cast<u64>(registers_[base_register + 1][l]) << 32;
      const u64 address = base + static_cast<int64_t>(static_cast<int32_t>(at.value));
      p = place_of(x, address, store);
      touch(address >> 7, 1u << (address >> 5 & 3));
    }
    for (u32 k = 0; k < words; k++, p += step) {
      u32& held = registers_[data.index == ZERO ? ZERO : data.index + k][l];
      if (store) std::memcpy(p, &held, size);
      else if (data.index != ZERO) {
        held = 0;
        std::memcpy(&held, p, size);
      }
    }
  }
}

// -- going on ---------------------------------------------------------------------------------------------------------

// True if the instruction says itself where threads go on.
bool Warp::control(const Instruction& x, u32 threads) {
  const u32 here = x.address;
  auto go_on = [&](u32 which) {
    for (int l = 0; l < LANES; l++) if (which >> l & 1) places_[l] += SIZE;
  };
  switch (x.operation) {
    case BRA: case CALL: {
      const int last = x.count - 1;
      u32 taken = last && x.operation == BRA ? threads & truth(x, 0) : threads;
      for (int l = 0; l < LANES; l++)
        if (current_ >> l & 1) places_[l] = taken >> l & 1 ? x.operands[last].value : here + SIZE;
      if (taken && taken != current_) current_ &= ~taken;  // those that go straight on go first
      return true;
    }
    case RET: {
      go_on(current_ & ~threads);
      for (int l = 0; l < LANES; l++) if (threads >> l & 1) places_[l] = registers_[x.operands[0].index][l];
      u32 there = places_[__builtin_ctz(current_)], same = 0;
      for (int l = 0; l < LANES; l++) if ((current_ >> l & 1) && places_[l] == there) same |= 1u << l;
      current_ = same;
      return true;
    }
    case BSSY:
      for (int l = 0; l < LANES; l++) if (threads >> l & 1) barriers_[x.operands[0].index][l] = threads;
      return false;
    case BREAK:
      for (int l = 0; l < LANES; l++)
        if (threads >> l & 1) {
          u32 others = barriers_[x.operands[0].index][l];
          for (int j = 0; j < LANES; j++) if (others >> j & 1) barriers_[x.operands[0].index][j] &= ~(1u << l);
        }
      go_on(current_);
      release();
      return true;
    case BSYNC:
      go_on(current_ & ~threads);
      for (int l = 0; l < LANES; l++) if (threads >> l & 1) waits_[l] = x.operands[0].index;
      release();
      current_ = 0;
      return true;
    case WARPSYNC: {
      constexpr int ALL = 16;
      go_on(current_ & ~threads);
      for (int l = 0; l < LANES; l++)
        if (threads >> l & 1) waits_[l] = ALL, barriers_[ALL][l] = started_ & ~exited_;
      release();
      current_ = 0;
      return true;
    }
    case BAR: case BARANY:
      if (threads != (started_ & ~exited_)) throw Fault(here, "a barrier of some threads");
      waiting = true;
      says = x.operation == BARANY && (truth(x, 1) & threads);
      return false;
    case EXIT:
      go_on(current_ & ~threads);
      exited_ |= threads;
      current_ &= ~threads;
      release();
      return true;
    default: return false;
  }
}

void Warp::step(const Instruction& x, std::vector<Touched>* touched) {
  u32 guard = (x.guard_kind == Kind::PREDICATE ? predicates_ : uniform_predicates_)[x.guard_index];
  u32 threads = current_ & (x.guard_inverted ? ~guard : guard);
  issued++;
  active += __builtin_popcount(threads);
  switch (x.operation) {
    case BRA: case CALL: case RET: case BSYNC: case BREAK: case EXIT: case BSSY: case NOP:
    case BAR: case BARANY: case WARPSYNC:
      if (control(x, threads)) return;
      break;
    case LDG: case STG: case LDL: case STL: case LDS: case STS: memory(x, threads, touched); break;
    default: if (threads) compute(x, threads);
  }
  for (int l = 0; l < LANES; l++) if (current_ >> l & 1) places_[l] += SIZE;
}

}  // namespace sass

// -- for Python -------------------------------------------------------------------------------------------------------

extern "C" {

// The name of an operation by its number, or null.
const char* sass_operation(int k) {
  static const char* names[] = {
#define OP(name, unit) #name,
      SASS_OPERATIONS(OP)
#undef OP
  };
  return k < static_cast<int>(sizeof names / sizeof *names) ? names[k] : nullptr;
}

// Run a grid of blocks, warp after warp to where it waits for the others of its block. Gives how often warps issued each instruction, how many that were, threads that
// they were for, and the fewest that it could have been: each instruction as often as the thread that came there most.
// Returns 0, or 1 with a message and where the fault is.
int sass_run(const sass::Launch* launch, sass::u32 blocks, sass::u64* visits, sass::u64 counts[3], sass::u32* where,
             char* message, sass::u64 room) {
  using namespace sass;
  try {
    const u32 warps = (launch->threads + LANES - 1) / LANES;
    std::vector<std::vector<Row>> came(warps, std::vector<Row>(launch->instructions));
    for (u32 block = 0; block < blocks; block++) {
      std::vector<u8> shared(launch->shared, 0xff);
      std::vector<std::unique_ptr<Warp>> all;
      for (u32 first = 0; first < launch->threads; first += LANES)
        all.push_back(std::make_unique<Warp>(*launch, block, first, std::min<u32>(LANES, launch->threads - first), &shared));
      bool at_barrier = true;
      while (at_barrier) {
        at_barrier = false;
        try {
          for (u32 k = 0; k < warps; k++) {
            Warp& warp = *all[k];
            warp.waiting = false;
            while (!warp.done() && !warp.waiting) {
              const Instruction& x = warp.next();
              const u32 running = warp.running();
              Row& here = came[k][x.address / SIZE];
              for (int l = 0; l < LANES; l++) here[l] += running >> l & 1;
              visits[x.address / SIZE]++;
              warp.step(x);
            }
            at_barrier |= warp.waiting;
          }
          bool said = false;  // since Volta, nobody waits for those that have ended
          for (auto& warp : all) said |= warp->waiting && warp->says;
          for (auto& warp : all) warp->says = said;
        } catch (const Fault& fault) {
          *where = fault.address;
          std::string text = "block " + std::to_string(block) + ": " + fault.what();
          std::strncpy(message, text.c_str(), room - 1);
          return 1;
        }
      }
      for (u32 k = 0; k < warps; k++) {
        counts[0] += all[k]->issued;
        counts[1] += all[k]->active;
        for (Row& each : came[k]) counts[2] += *std::max_element(each.begin(), each.end()), each.fill(0);
      }
    }
  } catch (const std::exception& error) {
    std::strncpy(message, error.what(), room - 1);
    return 1;
  }
  return 0;
}
}
