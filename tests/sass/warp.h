// A warp of 32 threads that runs NVIDIA's machine code (SASS, sm_90) to the bit, with true divergence: threads that
// part run one group after the other, and meet at the code's own convergence barriers.
#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace sass {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;

constexpr int LANES = 32;
constexpr u32 SIZE = 16;            // bytes of an instruction
constexpr u32 STACK_TOP = 1 << 20;  // where in its local memory a thread's stack ends
constexpr u32 SHARED = 0x400;       // where a block's shared memory begins: the system has what is before it
constexpr u32 ZERO = 255, TRUE = 7;  // RZ, PT

// Operations, with the unit of a multiprocessor that runs them.
#define SASS_OPERATIONS(OP)                                                                                           \
  OP(FADD, FLOAT) OP(FMUL, FLOAT) OP(FFMA, FLOAT) OP(FMNMX, INTEGER) OP(FSEL, INTEGER) OP(FSETP, INTEGER)             \
  OP(FSET, INTEGER) OP(FCHK, SPECIAL) OP(FRND, SPECIAL) OP(FRND64, SPECIAL) OP(RCP, SPECIAL) OP(RSQ, SPECIAL)         \
  OP(RCP64H, SPECIAL) OP(RSQ64H, SPECIAL) OP(I2F, INTEGER) OP(I2D, SPECIAL) OP(F2I, SPECIAL) OP(D2I, SPECIAL)         \
  OP(DADD, DOUBLE) OP(DMUL, DOUBLE) OP(DFMA, DOUBLE) OP(DSETP, DOUBLE) OP(DMIN, DOUBLE) OP(DMAX, DOUBLE)              \
  OP(MOV, INTEGER) OP(CS2R, INTEGER) OP(SEL, INTEGER) OP(P2R, INTEGER) OP(R2UR, INTEGER) OP(S2R, SPECIAL)             \
  OP(IADD3, INTEGER) OP(VIADD, INTEGER) OP(VIMNMX, INTEGER) OP(VIADDMNMX, INTEGER) OP(LEA, INTEGER)                   \
  OP(LEAHI, INTEGER) OP(SHL, INTEGER) OP(SHR, INTEGER) OP(SAR, INTEGER) OP(SHL64HI, INTEGER) OP(LOP3, INTEGER)        \
  OP(PLOP3, INTEGER) OP(ISETP, INTEGER) OP(IMAD, FLOAT) OP(IMADHI, FLOAT) OP(IMADWIDE, FLOAT) OP(LDC, CONSTANT)       \
  OP(LDG, MEMORY) OP(STG, MEMORY) OP(LDL, MEMORY) OP(STL, MEMORY) OP(LDS, MEMORY) OP(STS, MEMORY) OP(SHFL, SPECIAL)   \
  OP(SHR64, INTEGER) OP(PRMT, INTEGER) OP(B2R, SPECIAL) OP(BAR, BRANCH) OP(BARANY, BRANCH) OP(WARPSYNC, BRANCH) OP(BRA, BRANCH) OP(BSSY, BRANCH)          \
  OP(BSYNC, BRANCH) OP(BREAK, BRANCH) OP(CALL, BRANCH) OP(RET, BRANCH) OP(EXIT, BRANCH) OP(NOP, BRANCH)

enum Operation : u16 {
#define OP(name, unit) name,
  SASS_OPERATIONS(OP)
#undef OP
};

enum class Unit : u8 { FLOAT, DOUBLE, INTEGER, SPECIAL, CONSTANT, MEMORY, BRANCH };

// As decode.py writes them.
enum class Kind : u8 {
  REGISTER, UNIFORM, PREDICATE, UNIFORM_PREDICATE, NUMBER, CONSTANT, ADDRESS, BARRIER, TARGET, SPECIAL
};
enum OperandFlags : u8 { NEGATE = 1, ABSOLUTE = 2, INVERT = 4 };
enum Flags : u16 { FLUSH = 1, OR = 2, UNSIGNED = 4, CARRY = 8, PROPAGATE_NAN = 16, LAST_USE = 32, ONCE_A_WARP = 64 };
enum Compare : u8 { LESS = 1, EQUAL = 2, GREATER = 4, UNORDERED = 8 };

struct Operand {
  Kind kind;
  u8 flags;
  u16 index;  // of an address: of a register, and in the upper byte of one of the warp's; their sum counts
  u32 value;
};

struct Instruction {
  u32 address;
  Operation operation;
  u16 flags;
  u8 compare, rounding, width;
  Kind guard_kind;
  u8 guard_index, guard_inverted;
  u8 stall, sets, frees, waits;  // what ptxas has decided: cycles until the next, barriers (7: none; bits)
  u16 count;
  Operand operands[7];
};
static_assert(sizeof(Instruction) == 76);

struct Range {
  u64 begin, end;
  u64 writable;
};

// A kernel with its arguments: what all its warps share.
struct Launch {
  const Instruction* code;
  u64 instructions;
  u32 stack;  // bytes of a thread
  u32 threads;  // of a block
  const u64* parameters;
  u64 parameter_count;
  const u64* bank4;  // addresses of tables
  u64 bank4_count;
  const Range* ranges;  // all that may be touched in global memory
  u64 range_count;
  u64 shared;  // bytes of a block
};

// What a device would refuse, or what this emulator does not know.
struct Fault : std::runtime_error {
  u32 address;
  Fault(u32 at, const std::string& what) : std::runtime_error(what), address(at) {}
};

using Row = std::array<u32, LANES>;  // a number for each thread

// Memory that an instruction touched: lines of 128 bytes, of each the sectors of 32 bytes.
struct Touched {
  u64 line;
  u32 sectors;
};

class Warp {
 public:
  // `shared` is the memory of its block.
  Warp(const Launch& launch, u32 block, u32 first_thread, u32 threads, std::vector<u8>* shared = nullptr);

  bool waiting = false;  // for the other warps of the block
  bool says = false;     // what it says there, and is told when all have come
  bool done() const { return !(started_ & ~exited_); }
  // The next instruction: of the threads that run now, or, when these have come to a barrier or to the end, of others.
  const Instruction& next();
  // Run it. With `touched`, say what memory it touched.
  void step(const Instruction& x, std::vector<Touched>* touched = nullptr);

  u64 issued = 0, active = 0;  // instructions, and threads that they were for
  u32 running() const { return current_; }
  u32 place() const { return places_[__builtin_ctz(current_)]; }

 private:
  const Launch& launch_;
  u32 block_, first_thread_;
  alignas(64) std::array<Row, 256> registers_;
  std::array<u32, 256> uniform_;  // registers of the warp
  std::array<u32, 8> predicates_, uniform_predicates_;  // a bit a thread; all bits alike
  Row places_;  // where each thread is
  std::array<int, LANES> waits_;  // at which barrier it waits, -1: at none
  std::array<Row, 17> barriers_;  // of each thread, with which others it is to meet there; the last: with all
  u32 started_, exited_ = 0, current_;
  std::vector<u8> local_;
  std::vector<u8>* shared_;

  u32 constant(const Instruction& x, const Operand& o) const;
  bool wide_zero(const Operand& o) const;
  const u32* read(const Instruction& x, int k, Row& room) const;  // as it is, without sign or inversion
  const u32* whole(const Instruction& x, int k, Row& room) const;
  const u32* single(const Instruction& x, int k, Row& room) const;
  void read64(const Instruction& x, int k, std::array<u64, LANES>& out) const;
  void doubles(const Instruction& x, int k, std::array<double, LANES>& out) const;
  u32 truth(const Instruction& x, int k) const;  // a bit a thread
  void write(const Instruction& x, int k, const u32* row, u32 threads);
  void write_wide(const Instruction& x, int k, const u64* row, u32 threads);
  void write_truth(const Instruction& x, int k, u32 bits, u32 threads);

  template <class F> void floats(const Instruction& x, u32 threads, int count, F f);
  template <class F> void wholes(const Instruction& x, u32 threads, int first, int count, F f);
  template <class F> void wide(const Instruction& x, u32 threads, F f);
  void rounded(const Instruction& x, u32 threads);
  void compute(const Instruction& x, u32 threads);
  void memory(const Instruction& x, u32 threads, std::vector<Touched>* touched);
  u8* place_of(const Instruction& x, u64 address, bool store) const;
  bool control(const Instruction& x, u32 threads);
  void choose();
  void release();
};

}  // namespace sass
