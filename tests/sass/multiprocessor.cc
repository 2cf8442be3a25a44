// A model of one multiprocessor in time: how many cycles it takes for a number of warps.
//
// Four schedulers issue in order, one instruction a cycle each, from warps of their own. What a warp has to wait for is
// what ptxas wrote into each instruction: cycles until the next one, and barriers that loads and other instructions of
// unknown length free when they are done. Instructions come through a cache of each scheduler (L0) and one of all four
// (L1.5); data through L1 and this multiprocessor's share of L2. NVIDIA publishes little of this: all numbers are
// parameters, for a measurement to correct.

#include <algorithm>
#include <cstring>
#include <list>
#include <memory>
#include <unordered_map>

#include "warp.h"

namespace sass {

// As benchmarks/cuda_limits.py has them, with what each means. Bytes, cycles, bytes a cycle.
struct Chip {
  double fetch_line, l0_bytes, prefetch_lines, l15_bytes, l15_latency, l15_rate, fetch_latency, fetch_rate;
  double l1_bytes, l1_latency, l1_lines_a_cycle, l2_bytes, l2_latency, l2_rate, dram_latency, dram_rate;
  double float_cycles, wide_cycles, double_cycles, integer_cycles, special_cycles, memory_cycles;
  double special_latency, constant_latency, double_latency, operands_read, branch_cycles;
  double perfect_fetch, perfect_data;
};

// What came of it. Slots are a scheduler's cycles: with an instruction issued, or waiting, and for what.
struct Spent {
  u64 cycles, issued, active, busiest;  // busiest: instructions of the scheduler that had most
  u64 issue_slots, fetch_slots, barrier_slots, stall_slots, unit_slots, empty_slots;
  u64 l1_accesses, l1_misses, l2_bytes, written_back, dram_bytes, fetched_bytes;
};

namespace {

constexpr u64 NEVER = ~0ull;

// Lines by least recent use.
class Cache {
 public:
  struct Line { u64 key, arrives; u32 dirty; };

  explicit Cache(double lines) : capacity_(std::max<size_t>(1, static_cast<size_t>(lines))) {}

  Line* find(u64 key) {
    auto at = places_.find(key);
    if (at == places_.end()) return nullptr;
    lines_.splice(lines_.begin(), lines_, at->second);
    return &lines_.front();
  }

  bool holds(u64 key) const { return places_.count(key); }

  // Put a line first; `out` is what it drives out, with `dirty` 0 if nothing is lost.
  Line* put(u64 key, u64 arrives, u32 dirty, Line& out) {
    out = {0, 0, 0};
    if (lines_.size() >= capacity_) {
      out = lines_.back();
      places_.erase(out.key);
      lines_.splice(lines_.begin(), lines_, std::prev(lines_.end()));
      lines_.front() = {key, arrives, dirty};
    } else {
      lines_.push_front({key, arrives, dirty});
    }
    places_[key] = lines_.begin();
    return &lines_.front();
  }

  void drop(u64 key) {
    auto at = places_.find(key);
    if (at == places_.end()) return;
    lines_.erase(at->second);
    places_.erase(at);
  }

 private:
  size_t capacity_;
  std::list<Line> lines_;
  std::unordered_map<u64, std::list<Line>::iterator> places_;
};

// A way that so many bytes a cycle go through, one request after the other.
struct Way {
  double free = 0;
  double pass(double now, double bytes, double rate) {
    double begin = std::max(now, free);
    free = begin + bytes / rate;
    return begin;
  }
};

enum Reason { ISSUED, FETCH, BARRIER, STALL, UNIT, EMPTY, REASONS };

struct Running {
  std::unique_ptr<Warp> warp;
  u64 number = 0;
  u64 next = 0;              // not before, by the stall of its last instruction
  u64 barriers[6] = {};      // when each is free
  u64 line = NEVER;          // of the last instruction
  u64 earliest = 0;          // a bound on when it can issue, and what it waits for
  Reason reason = EMPTY;
};

struct Scheduler {
  Cache l0;
  std::vector<Running> slots;
  size_t last = 0;
  u64 issued = 0;
  u64 units[7] = {};
  explicit Scheduler(double lines) : l0(lines) {}
};

class Multiprocessor {
 public:
  Multiprocessor(const Chip& chip, const Launch& launch, u32 first, u32 warps, u32 resident)
      : chip_(chip), launch_(launch), next_(first), end_(first + warps),
        l15_(chip.l15_bytes / chip.fetch_line), l1_(chip.l1_bytes / 128), l2_(chip.l2_bytes / 128) {
    for (int k = 0; k < 4; k++) schedulers_.emplace_back(chip.l0_bytes / chip.fetch_line);
    for (u32 k = 0; k < std::min(warps, resident); k++) {
      Running running;
      start(running, 0);
      schedulers_[k % 4].slots.push_back(std::move(running));
    }
  }

  Spent run() {
    u64 now = 0;
    while (alive_) {
      u64 soonest = NEVER;
      Reason reasons[4];
      for (int k = 0; k < 4; k++) {
        reasons[k] = turn(schedulers_[k], now, soonest);
        if (reasons[k] == ISSUED) soonest = now + 1;
      }
      if (!alive_) soonest = now + 1;
      if (soonest == NEVER) throw Fault(0, "no warp can go on");
      const u64 passed = soonest - now;
      for (Reason reason : reasons) slots_[reason] += reason == ISSUED ? 1 : passed;
      now = soonest;
    }
    spent_.cycles = now;
    for (auto& s : schedulers_) spent_.busiest = std::max(spent_.busiest, s.issued);
    spent_.issue_slots = slots_[ISSUED], spent_.fetch_slots = slots_[FETCH], spent_.barrier_slots = slots_[BARRIER];
    spent_.stall_slots = slots_[STALL], spent_.unit_slots = slots_[UNIT], spent_.empty_slots = slots_[EMPTY];
    return spent_;
  }

 private:
  const Chip& chip_;
  const Launch& launch_;
  u64 next_, end_;
  Cache l15_, l1_, l2_;
  Way l15_way_, fetch_way_, l1_way_, l2_way_, dram_way_;
  std::vector<Scheduler> schedulers_;
  std::vector<Touched> touched_;
  u64 slots_[REASONS] = {};
  size_t alive_ = 0;
  Spent spent_{};

  void start(Running& running, u64 now) {
    if (next_ == end_) {
      running.warp.reset();
      return;
    }
    running = Running();
    running.number = next_++;
    running.warp = std::make_unique<Warp>(launch_, static_cast<u32>(running.number), 0, LANES);
    running.next = running.earliest = now;
    alive_++;
  }

  // Issue from the warp that issued last, else from the first that can.
  Reason turn(Scheduler& s, u64 now, u64& soonest) {
    Reason why = EMPTY;
    u64 first = NEVER;
    for (size_t j = 0; j < s.slots.size(); j++) {
      const size_t k = j == 0 ? s.last : j - (j <= s.last);
      Running& running = s.slots[k];
      if (!running.warp) continue;
      if (running.earliest <= now) running.earliest = attempt(s, running, now);
      if (running.earliest == now) {
        s.last = k;
        issue(s, running, now);
        return ISSUED;
      }
      if (running.earliest < first) first = running.earliest, why = running.reason;
    }
    soonest = std::min(soonest, first);
    return why;
  }

  // When the warp's next instruction can be issued, for what is known now: `now`, or later.
  u64 attempt(Scheduler& s, Running& running, u64 now) {
    const Instruction& x = running.warp->next();
    if (!chip_.perfect_fetch) {
      const u64 line = x.address / static_cast<u64>(chip_.fetch_line);
      if (line != running.line) {
        const u64 arrives = fetch(s, line, now);
        if (arrives > now) return running.reason = FETCH, arrives;
        running.line = line;
      }
    }
    if (running.next > now) return running.reason = STALL, running.next;
    u64 free = now;
    for (int k = 0; k < 6; k++)
      if (x.waits >> k & 1) free = std::max(free, running.barriers[k]);
    if (free > now) return running.reason = BARRIER, free;
    const u64 unit = s.units[static_cast<int>(unit_of(x))];
    if (unit > now) return running.reason = UNIT, unit;
    return now;
  }

  static Unit unit_of(const Instruction& x) {
    static const Unit units[] = {
#define OP(name, unit) Unit::unit,
        SASS_OPERATIONS(OP)
#undef OP
    };
    return units[x.operation];
  }

  u64 unit_cycles(const Instruction& x) const {
    switch (unit_of(x)) {
      case Unit::FLOAT: return static_cast<u64>(x.operation >= IMAD ? chip_.wide_cycles : chip_.float_cycles);
      case Unit::DOUBLE: return static_cast<u64>(chip_.double_cycles);
      case Unit::INTEGER: return x.flags & ONCE_A_WARP ? 1 : static_cast<u64>(chip_.integer_cycles);
      case Unit::SPECIAL: return static_cast<u64>(chip_.special_cycles);
      case Unit::MEMORY: return static_cast<u64>(chip_.memory_cycles);
      default: return 1;
    }
  }

  void issue(Scheduler& s, Running& running, u64 now) {
    const Instruction& x = running.warp->next();
    const Unit unit = unit_of(x);
    s.units[static_cast<int>(unit)] = now + unit_cycles(x);
    s.issued++;
    touched_.clear();
    Warp& warp = *running.warp;
    warp.step(x, unit == Unit::MEMORY && !chip_.perfect_data ? &touched_ : nullptr);
    running.next = now + std::max<u64>(1, x.stall);
    u64 done = now + 20, read = now + static_cast<u64>(chip_.operands_read);
    if (unit == Unit::MEMORY) {
      done = access(running, x, now);
      read = std::max(read, static_cast<u64>(l1_way_.free));
    } else if (unit == Unit::SPECIAL || x.operation == R2UR) {
      done = now + static_cast<u64>(chip_.special_latency);
    } else if (unit == Unit::CONSTANT) {
      done = now + static_cast<u64>(chip_.constant_latency);
    } else if (unit == Unit::DOUBLE) {
      done = now + static_cast<u64>(chip_.double_latency);
    } else if (unit == Unit::BRANCH && !warp.done() && warp.next().address != x.address + SIZE) {
      running.next = std::max(running.next, now + static_cast<u64>(chip_.branch_cycles));
    }
    if (x.sets < 6) running.barriers[x.sets] = std::max(running.barriers[x.sets], done);
    if (x.frees < 6) running.barriers[x.frees] = std::max(running.barriers[x.frees], read);
    running.earliest = running.next;
    running.reason = STALL;
    if (warp.done()) {
      spent_.issued += warp.issued;
      spent_.active += warp.active;
      alive_--;
      for (u64 k = 0; k < launch_.stack / 4; k++) l1_.drop(key(running, k)), l2_.drop(key(running, k));
      start(running, now + 1);
    }
  }

  // -- instructions -----------------------------------------------------------------------------------------------

  // When a line of code is in the scheduler's L0; those after it are asked for, too.
  u64 fetch(Scheduler& s, u64 line, u64 now) {
    const u64 last = (launch_.instructions * SIZE - 1) / static_cast<u64>(chip_.fetch_line);
    Cache::Line* found = s.l0.find(line);
    const u64 arrives = found ? found->arrives : load(s, line, now);
    for (u64 k = line + 1; k <= std::min(last, line + static_cast<u64>(chip_.prefetch_lines)); k++)
      if (!s.l0.holds(k)) load(s, k, now);
    return std::max(arrives, now);
  }

  u64 load(Scheduler& s, u64 line, u64 now) {
    Cache::Line out, *found = l15_.find(line);
    double ready = static_cast<double>(now);
    if (found) {
      ready = std::max(ready, static_cast<double>(found->arrives));
    } else {
      const double sent = l2_way_.pass(ready, chip_.fetch_line, chip_.l2_rate);
      ready = fetch_way_.pass(sent, chip_.fetch_line, chip_.fetch_rate) + chip_.fetch_latency;
      spent_.fetched_bytes += static_cast<u64>(chip_.fetch_line);
      l15_.put(line, static_cast<u64>(ready), 0, out);
    }
    ready = l15_way_.pass(ready, chip_.fetch_line, chip_.l15_rate) + chip_.l15_latency;
    s.l0.put(line, static_cast<u64>(ready), 0, out);
    return static_cast<u64>(ready);
  }

  // -- data -------------------------------------------------------------------------------------------------------

  static u64 key(const Running& running, u64 line) { return (running.number + 1) << 32 | line; }

  // When an access is done.
  u64 access(Running& running, const Instruction& x, u64 now) {
    const bool local = x.operation == LDL || x.operation == STL, store = x.operation == STL || x.operation == STG;
    const double lines = std::max<size_t>(1, touched_.size());
    const double begin = l1_way_.pass(static_cast<double>(now) + 8, lines, chip_.l1_lines_a_cycle);
    double done = begin + chip_.l1_latency;
    for (const Touched& t : touched_) {
      const u64 name = local ? key(running, t.line) : t.line | 1ull << 63;
      const int sectors = __builtin_popcount(t.sectors);
      Cache::Line out;
      spent_.l1_accesses++;
      if (store && !local) {
        to_l2(name, sectors, true, begin);
        continue;
      }
      Cache::Line* found = l1_.find(name);
      if (store) {
        if (found) found->dirty |= t.sectors;
        else l1_.put(name, now, t.sectors, out), write_back(out, begin);
        continue;
      }
      if (found) {
        done = std::max(done, static_cast<double>(found->arrives));
      } else {
        spent_.l1_misses++;
        const double arrives = to_l2(name, local ? sectors : 4, false, begin);
        done = std::max(done, arrives);
        l1_.put(name, static_cast<u64>(arrives), 0, out);
        write_back(out, begin);
      }
      if (x.flags & LAST_USE) l1_.drop(name), l2_.drop(name);  // nobody will ask for it again
    }
    return static_cast<u64>(done);
  }

  void write_back(const Cache::Line& out, double now) {
    if (!out.dirty) return;
    spent_.written_back += 32 * __builtin_popcount(out.dirty);
    to_l2(out.key, __builtin_popcount(out.dirty), true, now);
  }

  double to_l2(u64 name, int sectors, bool store, double now) {
    const double begin = l2_way_.pass(now, 32 * sectors, chip_.l2_rate);
    double done = begin + chip_.l2_latency;
    spent_.l2_bytes += 32 * sectors;
    Cache::Line out{0, 0, 0}, *found = l2_.find(name);
    if (found) {
      found->dirty |= store;
    } else {
      if (!store) {
        done = dram_way_.pass(begin, 32 * sectors, chip_.dram_rate) + chip_.dram_latency;
        spent_.dram_bytes += 32 * sectors;
      }
      l2_.put(name, 0, store, out);
    }
    if (out.dirty) dram_way_.pass(begin, 128, chip_.dram_rate), spent_.dram_bytes += 128;
    return done;
  }
};

}  // namespace
}  // namespace sass

extern "C" int sass_time(const sass::Launch* launch, const sass::Chip* chip, sass::u32 first, sass::u32 warps,
                         sass::u32 resident, sass::Spent* spent, char* message, sass::u64 room) {
  try {
    *spent = sass::Multiprocessor(*chip, *launch, first, warps, resident).run();
    return 0;
  } catch (const std::exception& error) {
    std::strncpy(message, error.what(), room - 1);
    return 1;
  }
}
