"""What the interpreter of PTX (ptx.py) calls, as LLVM IR: instructions, the watch over memory, and the run of a warp.

A `%job` is a `ptx.Job`.
"""

from __future__ import annotations

FLOATS = {"f32": ("float", "i32"), "f64": ("double", "i64")}

# Shifts by the width or more leave nothing. If one of two numbers is NaN, min and max give the other; for them -0 is
# less than +0. A float beyond the integers becomes the nearest integer; NaN becomes 0, or from float64 the least
# integer.
FLOAT_HELPERS = """
define internal {F} @min.{t}({F} %a, {F} %b) {{
  %less = fcmp olt {F} %a, %b
  %lone = fcmp uno {F} %b, %b
  %first = or i1 %less, %lone
  %chosen = select i1 %first, {F} %a, {F} %b
  %x = bitcast {F} %a to {T}
  %y = bitcast {F} %b to {T}
  %either = or {T} %x, %y
  %alike = bitcast {T} %either to {F}
  %same = fcmp oeq {F} %a, %b
  %out = select i1 %same, {F} %alike, {F} %chosen
  ret {F} %out
}}
define internal {F} @max.{t}({F} %a, {F} %b) {{
  %more = fcmp ogt {F} %a, %b
  %lone = fcmp uno {F} %b, %b
  %first = or i1 %more, %lone
  %chosen = select i1 %first, {F} %a, {F} %b
  %x = bitcast {F} %a to {T}
  %y = bitcast {F} %b to {T}
  %both = and {T} %x, %y
  %alike = bitcast {T} %both to {F}
  %same = fcmp oeq {F} %a, %b
  %out = select i1 %same, {F} %alike, {F} %chosen
  ret {F} %out
}}
define internal i32 @truncated.{t}({F} %x) {{
  %number = call i32 @llvm.fptosi.sat.i32.{t}({F} %x)
  %lone = fcmp uno {F} %x, %x
  %out = select i1 %lone, i32 {nan}, i32 %number
  ret i32 %out
}}
"""
HELPERS = """
define internal i64 @shl64(i64 %x, i32 %n) {
  %wide = zext i32 %n to i64
  %some = icmp ult i32 %n, 64
  %by = select i1 %some, i64 %wide, i64 0
  %moved = shl i64 %x, %by
  %out = select i1 %some, i64 %moved, i64 0
  ret i64 %out
}
define internal i64 @shr64(i64 %x, i32 %n) {
  %wide = zext i32 %n to i64
  %some = icmp ult i32 %n, 64
  %by = select i1 %some, i64 %wide, i64 0
  %moved = lshr i64 %x, %by
  %out = select i1 %some, i64 %moved, i64 0
  ret i64 %out
}
define internal i32 @shl32(i32 %x, i32 %n) {
  %wide = zext i32 %x to i64
  %moved = call i64 @shl64(i64 %wide, i32 %n)
  %out = trunc i64 %moved to i32
  ret i32 %out
}
define internal i16 @shl16(i16 %x, i32 %n) {
  %wide = zext i16 %x to i64
  %moved = call i64 @shl64(i64 %wide, i32 %n)
  %out = trunc i64 %moved to i16
  ret i16 %out
}
define internal i32 @field(i32 %x, i32 %at, i32 %n) {
  %first = and i32 %at, 255
  %many = and i32 %n, 255
  %low = call i32 @shr32(i32 %x, i32 %first)
  %above = call i32 @shl32(i32 -1, i32 %many)
  %mask = xor i32 %above, -1
  %out = and i32 %low, %mask
  ret i32 %out
}
define internal i32 @shr32(i32 %x, i32 %n) {
  %wide = zext i32 %x to i64
  %moved = call i64 @shr64(i64 %wide, i32 %n)
  %out = trunc i64 %moved to i32
  ret i32 %out
}
define internal i32 @mad32(i32 %a, i32 %b, i32 %c) {
  %ab = mul i32 %a, %b
  %out = add i32 %ab, %c
  ret i32 %out
}
define internal i64 @mad64(i64 %a, i64 %b, i64 %c) {
  %ab = mul i64 %a, %b
  %out = add i64 %ab, %c
  ret i64 %out
}
define internal i64 @wide.u(i32 %a, i32 %b) {
  %x = zext i32 %a to i64
  %y = zext i32 %b to i64
  %xy = mul i64 %x, %y
  ret i64 %xy
}
define internal i64 @wide.s(i32 %a, i32 %b) {
  %x = sext i32 %a to i64
  %y = sext i32 %b to i64
  %xy = mul i64 %x, %y
  ret i64 %xy
}
define internal i32 @upper(i64 %x) {
  %up = lshr i64 %x, 32
  %out = trunc i64 %up to i32
  ret i32 %out
}
define internal i64 @high64(i64 %a, i64 %b) {
  %x = zext i64 %a to i128
  %y = zext i64 %b to i128
  %xy = mul i128 %x, %y
  %up = lshr i128 %xy, 64
  %out = trunc i128 %up to i64
  ret i64 %out
}
define internal i32 @high32(i32 %a, i32 %b) {
  %xy = call i64 @wide.u(i32 %a, i32 %b)
  %out = call i32 @upper(i64 %xy)
  ret i32 %out
}
define internal i32 @clean(float %x) {
  %bits = bitcast float %x to i32
  %lone = fcmp uno float %x, %x
  %out = select i1 %lone, i32 2147483647, i32 %bits
  ret i32 %out
}
; Where to load or store: the address itself if it lies in one of the places that the kind of access may touch; if not,
; the fault is noted and the access goes nowhere. %job is a Job.
define internal ptr @place(ptr %job, i64 %address, i64 %size, i32 %kind, i1 %store, i64 %line) {
entry:
  %lastp = getelementptr i64, ptr %job, i32 %kind
  %last = load i64, ptr %lastp
  %ranges.p = getelementptr i64, ptr %job, i32 4
  %ranges = load ptr, ptr %ranges.p
  %shadows.p = getelementptr i64, ptr %job, i32 15
  %shadows = load ptr, ptr %shadows.p
  %have = icmp ne ptr %shadows, null
  %not.local = icmp ne i32 %kind, 0
  %watched = and i1 %have, %not.local
  %wide = zext i32 %kind to i64
  %small = icmp ult i64 %wide, 2
  %from = select i1 %small, i64 %wide, i64 2
  %end = add i64 %address, %size
  %mask = sub i64 %size, 1
  %rest = and i64 %address, %mask
  %odd = icmp ne i64 %rest, 0
  br i1 %odd, label %fault, label %head
head:
  %k = phi i64 [ %from, %entry ], [ %next, %step ]
  %left = icmp slt i64 %k, %last
  br i1 %left, label %step, label %fault
step:
  %next = add i64 %k, 1
  %at = mul i64 %k, 2
  %low.p = getelementptr i64, ptr %ranges, i64 %at
  %high.p = getelementptr i64, ptr %low.p, i64 1
  %low = load i64, ptr %low.p
  %high = load i64, ptr %high.p
  %above = icmp uge i64 %address, %low
  %below = icmp ule i64 %end, %high
  %in = and i1 %above, %below
  br i1 %in, label %found, label %head
found:
  br i1 %watched, label %watch, label %good
watch:
  %shadow.p = getelementptr ptr, ptr %shadows, i64 %k
  %shadow = load ptr, ptr %shadow.p
  %within = sub i64 %address, %low
  %word = lshr i64 %within, 2
  %past = add i64 %within, %size
  %last.word = lshr i64 %past, 2
  br label %each
each:
  %one = phi i64 [ %word, %watch ], [ %one.next, %fine ]
  %more = icmp ult i64 %one, %last.word
  br i1 %more, label %look, label %good
look:
  %one.next = add i64 %one, 1
  %seen.at = shl i64 %one, 1
  %seen = getelementptr i64, ptr %shadow, i64 %seen.at
  %other = call i64 @touch(ptr %job, ptr %seen, i1 %store)
  %alone = icmp eq i64 %other, 0
  br i1 %alone, label %fine, label %race
fine:
  br label %each
race:
  %with.p = getelementptr i64, ptr %job, i32 18
  store i64 %other, ptr %with.p
  br label %fault
good:
  %there = inttoptr i64 %address to ptr
  ret ptr %there
fault:
  %line.p = getelementptr i64, ptr %job, i32 5
  %address.p = getelementptr i64, ptr %job, i32 6
  store i64 %line, ptr %line.p
  store i64 %address, ptr %address.p
  %nowhere = getelementptr i64, ptr %job, i32 7
  ret ptr %nowhere
}
; Note an access to a word; the stamp of another one that may be at the same time, or 0. A stamp has the block, then in
; its lower 40 bits how often the block's threads have waited for each other, then in 16 bits the thread. All ones stand
; for many threads, or many blocks. %seen points to the stamps of who last wrote and who last read.
define internal i64 @touch(ptr %job, ptr %seen, i1 %store) {
entry:
  %stamp.p = getelementptr i64, ptr %job, i32 16
  %stamp = load i64, ptr %stamp.p
  %reader.p = getelementptr i64, ptr %seen, i32 1
  %writer = load i64, ptr %seen
  %reader = load i64, ptr %reader.p
  %written = call i1 @parallel(i64 %writer, i64 %stamp)
  br i1 %written, label %after.write, label %go
after.write:
  ret i64 %writer
go:
  br i1 %store, label %write, label %read
write:
  %had = call i1 @parallel(i64 %reader, i64 %stamp)
  br i1 %had, label %after.read, label %note
after.read:
  ret i64 %reader
note:
  store i64 %stamp, ptr %seen
  ret i64 0
read:
  %never = icmp eq i64 %reader, 0
  %mine = icmp eq i64 %reader, %stamp
  %plain = or i1 %never, %mine
  %block = lshr i64 %stamp, 40
  %its.block = lshr i64 %reader, 40
  %same.block = icmp eq i64 %block, %its.block
  %time = lshr i64 %stamp, 16
  %its.time = lshr i64 %reader, 16
  %same.time = icmp eq i64 %time, %its.time
  %threads = or i64 %stamp, 65535
  %later = select i1 %same.time, i64 %threads, i64 %stamp
  %blocks = select i1 %same.block, i64 %later, i64 -1
  %now = select i1 %plain, i64 %stamp, i64 %blocks
  store i64 %now, ptr %reader.p
  ret i64 0
}
define internal i1 @parallel(i64 %a, i64 %b) {
  %some = icmp ne i64 %a, 0
  %others = icmp ne i64 %a, %b
  %a.block = lshr i64 %a, 40
  %b.block = lshr i64 %b, 40
  %blocks = icmp ne i64 %a.block, %b.block
  %a.time = lshr i64 %a, 16
  %b.time = lshr i64 %b, 16
  %times = icmp eq i64 %a.time, %b.time
  %either = or i1 %blocks, %times
  %both = and i1 %others, %either
  %out = and i1 %some, %both
  ret i1 %out
}
; A thread has come to a block.
define internal void @visit(ptr %job, i32 %block) {
  %count.p = getelementptr i64, ptr %job, i32 9
  %room.p = getelementptr i64, ptr %job, i32 10
  %list.p = getelementptr i64, ptr %job, i32 11
  %count = load i64, ptr %count.p
  %room = load i64, ptr %room.p
  %list = load ptr, ptr %list.p
  %more = add i64 %count, 1
  store i64 %more, ptr %count.p
  %fits = icmp slt i64 %count, %room
  br i1 %fits, label %note, label %full
note:
  %at = getelementptr i32, ptr %list, i64 %count
  store i32 %block, ptr %at
  br label %full
full:
  ret void
}
"""
# Runs some threads of a warp to where they wait for each other, and says where that is: 0 at their end, -1 at a fault,
# -2 if it is not the same for all. A thread that has ended stays ended, and nobody waits for it. @thread runs one
# thread.
WARP_OF = """
define i32 @warp(ptr %job, i32 %first, i32 %count, i32 %ctaid, i32 %resume, ptr %mails) {{
entry:
  %bounds.p = getelementptr i64, ptr %job, i32 4
  %bounds = load ptr, ptr %bounds.p
  %bound = getelementptr i64, ptr %bounds, i32 1
  %line.p = getelementptr i64, ptr %job, i32 5
  %depot.p = getelementptr i64, ptr %job, i32 12
  %stamp.p = getelementptr i64, ptr %job, i32 16
  %mail.p = getelementptr i64, ptr %job, i32 17
  %time.p = getelementptr i64, ptr %job, i32 19
  %time = load i64, ptr %time.p
  %registers.p = getelementptr i64, ptr %job, i32 20
  %registers = load ptr, ptr %registers.p
  %depots.p = getelementptr i64, ptr %job, i32 21
  %depots = load ptr, ptr %depots.p
  %at.p = getelementptr i64, ptr %job, i32 22
  %ended.p = getelementptr i64, ptr %job, i32 24
  %ended = load ptr, ptr %ended.p
  br label %head
head:
  %k = phi i32 [ 0, %entry ], [ %next, %go ], [ %next, %fine ], [ %next, %over ]
  %before = phi i32 [ 0, %entry ], [ %before, %go ], [ %stop, %fine ], [ %before, %over ]
  %left = icmp ult i32 %k, %count
  br i1 %left, label %go, label %out
go:
  %next = add i32 %k, 1
  %tid = add i32 %first, %k
  %wide = zext i32 %tid to i64
  %ended.at = getelementptr i8, ptr %ended, i64 %wide
  %was = load i8, ptr %ended.at
  %gone = icmp ne i8 %was, 0
  br i1 %gone, label %head, label %runs
runs:
  %name = add i64 %wide, 1
  %stamp = or i64 %time, %name
  store i64 %stamp, ptr %stamp.p
  store i64 %wide, ptr %at.p
  %own.at = mul i64 %wide, {registers}
  %own = getelementptr i64, ptr %registers, i64 %own.at
  %depot.at = mul i64 %wide, {depot}
  %depot = getelementptr i64, ptr %depots, i64 %depot.at
  %low = ptrtoint ptr %depot to i64
  %high = add i64 %low, {depot_bytes}
  store ptr %depot, ptr %depot.p
  store i64 %low, ptr %bounds
  store i64 %high, ptr %bound
  %mail.at = getelementptr i64, ptr %mails, i32 %k
  %mail = load i64, ptr %mail.at
  store i64 %mail, ptr %mail.p
  %stop = call i32 @thread(ptr %job, i32 %tid, i32 %ctaid, ptr %own, i32 %resume)
  %given = load i64, ptr %mail.p
  store i64 %given, ptr %mail.at
  %line = load i64, ptr %line.p
  %fault = icmp ne i64 %line, 0
  br i1 %fault, label %bad, label %ran
bad:
  ret i32 -1
ran:
  %ends = icmp eq i32 %stop, 0
  br i1 %ends, label %over, label %waits
over:
  store i8 1, ptr %ended.at
  br label %head
waits:
  %same = icmp eq i32 %stop, %before
  %first.one = icmp eq i32 %before, 0
  %well = or i1 %same, %first.one
  br i1 %well, label %fine, label %parted
parted:
  ret i32 -2
fine:
  br label %head
out:
  ret i32 %before
}}
"""
PRELUDE = HELPERS + "".join(
    FLOAT_HELPERS.format(t=t, F=F, T=T, nan=nan) for (t, (F, T)), nan in zip(FLOATS.items(), (0, -(2**31)), strict=True)
)
