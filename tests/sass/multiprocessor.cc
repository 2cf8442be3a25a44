// A model of one multiprocessor in time: how many cycles it takes for a number of warps.
//
// Four schedulers issue in order, one instruction a cycle each, from warps of their own. What a warp has to wait for is
// what ptxas wrote into each instruction: cycles until the next one, and barriers that loads and other instructions of
// unknown length free when they are done; and where its block meets, the block's other warps. Instructions come from L2
// through a cache that multiprocessors share, one of the multiprocessor, and one of each scheduler (L0). Data comes
// through L1 and this multiprocessor's share of L2. NVIDIA publishes little of this: all numbers are parameters, fitted
// to measurements.

#include <algorithm>
#include <cstring>
#include <list>
#include <memory>
#include <unordered_map>

#include "warp.h"

namespace sass {

// As benchmarks/cuda_limits.py has them, with what each means. Bytes, cycles, bytes a cycle.
struct Chip {
  double fetch_line, l0_bytes, l0_ahead_lines, icache_bytes, icache_latency, icache_rate;
  double sharers, gpc_bytes, gpc_ahead_lines, gpc_latency, gpc_rate, fetch_latency, fetch_rate;
  double l1_bytes, l1_latency, l1_lines_a_cycle, l2_bytes, l2_latency, l2_rate, dram_latency, dram_rate;
  double float_cycles, wide_cycles, double_cycles, integer_cycles, special_cycles, memory_cycles;
  double special_latency, constant_latency, double_latency, operands_read, branch_cycles, meeting_cycles;
  double perfect_fetch, perfect_data;
};

// What came of it. Slots are a scheduler's cycles: with an instruction issued, or waiting, and for what.
struct Spent {
  u64 cycles, issued, active, busiest;  // busiest: instructions of the scheduler that had most
  u64 issue_slots, fetch_slots, barrier_slots, stall_slots, unit_slots, meeting_slots, empty_slots;
  u64 fetch_waits, barrier_waits, stall_waits, unit_waits, meeting_waits, branch_waits;  // cycles, of all warps
  u64 l1_accesses, l1_misses, l2_read, written, dram_bytes, dram_read, fetched_bytes;
  u64 branches, jumps, l0_misses, icache_misses;
};

namespace {

constexpr u64 NEVER = ~0ull;

// Lines by least recent use.
class Cache {
 public:
  struct Line { u64 key, arrives; u32 there, dirty; };

  explicit Cache(double lines) : capacity_(std::max<size_t>(1, static_cast<size_t>(lines))) {}

  Line* find(u64 key) {
    auto at = places_.find(key);
    if (at == places_.end()) return nullptr;
    lines_.splice(lines_.begin(), lines_, at->second);
    return &lines_.front();
  }

  bool holds(u64 key) const { return places_.count(key); }

  // Put a line first, without any of its sectors; `out` is what it drives out, with `dirty` 0 if nothing is lost.
  Line* put(u64 key, u64 arrives, Line& out) {
    out = {0, 0, 0, 0};
    if (lines_.size() >= capacity_) {
      out = lines_.back();
      places_.erase(out.key);
      lines_.splice(lines_.begin(), lines_, std::prev(lines_.end()));
      lines_.front() = {key, arrives, 0, 0};
    } else {
      lines_.push_front({key, arrives, 0, 0});
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

enum Reason { ISSUED, FETCH, BARRIER, STALL, UNIT, MEETING, BRANCH, EMPTY, REASONS };

// Warps that wait for each other.
struct Block {
  std::vector<struct Running*> warps;
  std::vector<u8> shared;
  size_t alive = 0, waiting = 0;
};

struct Running {
  std::unique_ptr<Warp> warp;
  Block* block = nullptr;
  u64 number = 0;
  u64 stopped = 0;           // when it came to where it waits for its block
  u64 next = 0;              // not before, by the stall of its last instruction
  u64 barriers[6] = {};      // when each is free
  u64 line = NEVER;          // of the last instruction
  u64 earliest = 0;          // a bound on when it can issue, and what it waits for
  Reason reason = EMPTY;
};

struct Scheduler {
  Cache l0;
  std::vector<Running*> slots;
  size_t last = 0;
  u64 issued = 0;
  u64 units[7] = {};
  explicit Scheduler(double lines) : l0(lines) {}
};

class Multiprocessor {
 public:
  Multiprocessor(const Chip& chip, const Launch& launch, u32 first, u32 warps, u32 resident)
      : chip_(chip), launch_(launch), each_((launch.threads + LANES - 1) / LANES), next_(first), end_(first + warps),
        icache_(chip.icache_bytes / chip.fetch_line), gpc_(chip.gpc_bytes / chip.fetch_line),
        l1_(chip.l1_bytes / 128), l2_(chip.l2_bytes / 128),
        known_((launch.instructions * SIZE - 1) / static_cast<u64>(chip.fetch_line) + 1), places_(resident),
        blocks_(resident / each_) {
    if (first % each_ || warps % each_) throw Fault(0, "a part of a block");
    if (blocks_.empty()) throw Fault(0, "no room for a block");
    for (int k = 0; k < 4; k++) schedulers_.emplace_back(chip.l0_bytes / chip.fetch_line);
    for (size_t k = 0; k < blocks_.size() * each_; k++) {
      schedulers_[k % 4].slots.push_back(&places_[k]);
      blocks_[k / each_].warps.push_back(&places_[k]);
      places_[k].block = &blocks_[k / each_];
    }
    for (Block& block : blocks_) start(block, 0);
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
    spent_.stall_slots = slots_[STALL] + slots_[BRANCH], spent_.unit_slots = slots_[UNIT];
    spent_.meeting_slots = slots_[MEETING], spent_.empty_slots = slots_[EMPTY];
    spent_.fetch_waits = waits_[FETCH], spent_.barrier_waits = waits_[BARRIER], spent_.stall_waits = waits_[STALL];
    spent_.unit_waits = waits_[UNIT], spent_.meeting_waits = waits_[MEETING], spent_.branch_waits = waits_[BRANCH];
    return spent_;
  }

 private:
  const Chip& chip_;
  const Launch& launch_;
  u64 each_, next_, end_;
  Cache icache_, gpc_, l1_, l2_;
  Way icache_way_, gpc_way_, fetch_way_, l1_way_, l2_way_, dram_way_;
  std::vector<Scheduler> schedulers_;
  std::vector<bool> known_;  // lines of code that have been fetched
  std::vector<Running> places_;
  std::vector<Block> blocks_;
  std::vector<Touched> touched_;
  u64 slots_[REASONS] = {}, waits_[REASONS] = {};
  size_t alive_ = 0;
  Spent spent_{};

  // The next block of the grid, if there is one, where a block has ended.
  void start(Block& block, u64 now) {
    block.alive = block.waiting = 0;
    if (next_ == end_) return;
    block.shared.assign(launch_.shared, 0xff);
    for (Running* running : block.warps) {
      *running = Running();
      running->block = &block;
      running->number = next_++;
      const u32 number = static_cast<u32>(running->number / each_), first = running->number % each_ * LANES;
      const u32 threads = std::min<u32>(LANES, launch_.threads - first);
      running->warp = std::make_unique<Warp>(launch_, number, first, threads, &block.shared);
      running->next = running->earliest = now;
      block.alive++;
    }
    alive_ += block.alive;
  }

  // Let the warps of a block go on if all that have not ended have come.
  void meet(Block& block, u64 now) {
    if (!block.alive || block.waiting < block.alive) return;
    bool said = false;
    for (Running* each : block.warps) said |= each->warp && each->warp->waiting && each->warp->says;
    for (Running* each : block.warps) {
      if (!each->warp) continue;
      each->warp->waiting = false;
      each->warp->says = said;
      each->next = each->earliest = std::max(each->next, now + static_cast<u64>(chip_.meeting_cycles));
      waits_[MEETING] += each->next - each->stopped;
    }
    block.waiting = 0;
  }

  // Issue from the warp that issued last, else from the first that can.
  Reason turn(Scheduler& s, u64 now, u64& soonest) {
    Reason why = EMPTY;
    u64 first = NEVER;
    for (size_t j = 0; j < s.slots.size(); j++) {
      const size_t k = j == 0 ? s.last : j - (j <= s.last);
      Running& running = *s.slots[k];
      if (!running.warp) continue;
      if (running.earliest <= now) {
        running.earliest = attempt(s, running, now);
        if (running.earliest > now) waits_[running.reason] += running.earliest - now;
      }
      if (running.earliest == now) {
        s.last = k;
        issue(s, running, now);
        return ISSUED;
      }
      if (why == EMPTY || running.earliest < first) first = running.earliest, why = running.reason;
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
    }
    if (unit == Unit::BRANCH) {
      running.next += static_cast<u64>(chip_.branch_cycles);
      waits_[BRANCH] += static_cast<u64>(chip_.branch_cycles);
      spent_.branches++;
      if (!warp.done() && warp.next().address != x.address + SIZE) spent_.jumps++;
    }
    if (x.sets < 6) running.barriers[x.sets] = std::max(running.barriers[x.sets], done);
    if (x.frees < 6) running.barriers[x.frees] = std::max(running.barriers[x.frees], read);
    waits_[STALL] += std::max<u64>(1, x.stall) - 1;
    running.earliest = running.next;
    running.reason = STALL;
    Block& block = *running.block;
    if (warp.waiting) {
      running.stopped = running.next;
      running.earliest = NEVER;
      running.reason = MEETING;
      block.waiting++;
      meet(block, now);
    }
    if (warp.done()) {
      spent_.issued += warp.issued;
      spent_.active += warp.active;
      alive_--;
      running.warp.reset();
      block.alive--;
      if (!block.alive) start(block, now + 1);
      else meet(block, now);
    }
  }

  // -- instructions -----------------------------------------------------------------------------------------------

  // When a line of code is in the scheduler's L0; those after it are asked for, too.
  u64 fetch(Scheduler& s, u64 line, u64 now) {
    const u64 last = known_.size() - 1;
    Cache::Line* found = s.l0.find(line);
    if (!found) spent_.l0_misses++;
    const u64 arrives = found ? found->arrives : load(s, line, now);
    for (u64 k = line + 1; k <= std::min(last, line + static_cast<u64>(chip_.l0_ahead_lines)); k++)
      if (!s.l0.holds(k)) load(s, k, now);
    return std::max(arrives, now);
  }

  // Have a line of code brought to a scheduler's L0; when it is there.
  u64 load(Scheduler& s, u64 line, u64 now) {
    const double bytes = chip_.fetch_line;
    Cache::Line out;
    double ready = static_cast<double>(now);
    if (Cache::Line* found = icache_.find(line)) {
      ready = std::max(ready, static_cast<double>(found->arrives));
    } else {
      spent_.icache_misses++;
      const double asked = ready;
      ready = shared(line, asked);
      const u64 last = std::min<u64>(known_.size() - 1, line + static_cast<u64>(chip_.gpc_ahead_lines));
      for (u64 k = line + 1; k <= last; k++)
        if (!gpc_.holds(k)) shared(k, asked);
      ready = gpc_way_.pass(ready, bytes, chip_.gpc_rate / chip_.sharers) + chip_.gpc_latency;
      icache_.put(line, static_cast<u64>(ready), out);
    }
    ready = icache_way_.pass(ready, bytes, chip_.icache_rate) + chip_.icache_latency;
    s.l0.put(line, static_cast<u64>(ready), out);
    return static_cast<u64>(ready);
  }

  // When a line of code is in the cache that multiprocessors share.
  double shared(u64 line, double now) {
    if (Cache::Line* found = gpc_.find(line)) return std::max(now, static_cast<double>(found->arrives));
    // What nobody has had yet, all multiprocessors ask for at about the same time: it comes once for all of them.
    const double bytes = chip_.fetch_line;
    const double rate = known_[line] ? chip_.fetch_rate / chip_.sharers : chip_.fetch_rate;
    known_[line] = true;
    const double ready = fetch_way_.pass(now, bytes, rate) + chip_.fetch_latency;
    spent_.fetched_bytes += static_cast<u64>(bytes);
    Cache::Line out;
    gpc_.put(line, static_cast<u64>(ready), out);
    return ready;
  }

  // -- data -------------------------------------------------------------------------------------------------------

  // A place of a multiprocessor has memory of its own, that of each warp there in turn.
  u64 key(const Running& running, u64 line) const { return (&running - places_.data() + 1) << 32 | line; }

  // When an access is done. What is stored is in L1 and goes on to L2 at once.
  u64 access(Running& running, const Instruction& x, u64 now) {
    const bool local = x.operation == LDL || x.operation == STL, store = x.operation == STL || x.operation == STG;
    const double lines = std::max<size_t>(1, touched_.size());
    const double begin = l1_way_.pass(static_cast<double>(now) + 8, lines, chip_.l1_lines_a_cycle);
    double done = begin + chip_.l1_latency;
    for (const Touched& t : touched_) {
      const u64 name = local ? key(running, t.line) : t.line | 1ull << 63;
      Cache::Line out, *found = l1_.find(name);
      spent_.l1_accesses += __builtin_popcount(t.sectors);
      if (store) {
        spent_.l1_misses += __builtin_popcount(t.sectors & ~(found ? found->there : 0));
        if (local && !found) found = l1_.put(name, now, out);
        if (found) found->there |= t.sectors;
        to_l2(name, t.sectors, true, begin);
        continue;
      }
      if (found) done = std::max(done, static_cast<double>(found->arrives));
      else found = l1_.put(name, 0, out);
      if (const u32 missing = t.sectors & ~found->there) {
        spent_.l1_misses += __builtin_popcount(missing);
        const double arrives = to_l2(name, missing, false, begin);
        done = std::max(done, arrives);
        found->arrives = static_cast<u64>(arrives);
        found->there |= missing;
      }
      if (x.flags & LAST_USE) l1_.drop(name);  // nobody will ask for it again
    }
    return static_cast<u64>(done);
  }

  double to_l2(u64 name, u32 sectors, bool store, double now) {
    const int bytes = 32 * __builtin_popcount(sectors);
    const double begin = l2_way_.pass(now, bytes, chip_.l2_rate);
    double done = begin + chip_.l2_latency;
    (store ? spent_.written : spent_.l2_read) += bytes;
    Cache::Line out{0, 0, 0, 0}, *found = l2_.find(name);
    if (!found) found = l2_.put(name, 0, out);
    const u32 missing = sectors & ~found->there;
    found->there |= sectors;
    if (store) found->dirty |= sectors;
    if (missing && !store) {
      const int more = 32 * __builtin_popcount(missing);
      done = dram_way_.pass(begin, more, chip_.dram_rate) + chip_.dram_latency;
      spent_.dram_bytes += more, spent_.dram_read += more;
    }
    if (out.dirty) {
      const int old = 32 * __builtin_popcount(out.dirty);
      dram_way_.pass(begin, old, chip_.dram_rate), spent_.dram_bytes += old;
    }
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
