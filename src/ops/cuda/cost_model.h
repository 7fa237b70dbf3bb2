// The cost model of the GPU back end: every constant with which tiles, fusions and schedules are chosen. Times are in
// nanoseconds unless a comment says otherwise. Constants describe an NVIDIA H200 with 132 multiprocessors; on other
// GPUs the choices are valid, but may be slower. "Measured" refers to docs/notes/gpu-optimizations.md and
// docs/notes/gpu-experiments.md; a constant without it bounds memory, registers or work. Plain constants.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cuda/step.h"

namespace lockstep::cost_model {

constexpr int kWarps = kStepThreads / 32;  // per thread block

// Matrix products in tiles (gemm_choice.h).

// The tiles to choose from: rows, columns, and how the warps of a thread block divide rows, columns and sum. Tiles for
// half of the warps are for f32 only. They read a quarter less from shared memory, which bounds products of f32
// (measured on an H200: 1.8 to 2.8 % of a training step).
constexpr CudaTile kGemmTiles[] = {
    {128, 128, 2, kWarps / 4, 1}, {128, 128, 4, kWarps / 4, 1}, {128, 64, 4, 2, kWarps / 8},
    {64, 64, 1, 2, kWarps / 4},   {64, 64, 2, 2, kWarps / 4},   {64, 32, 2, 2, kWarps / 4},
    {32, 32, 2, 2, kWarps / 4},   {16, 32, 1, 2, kWarps / 2},   {16, 16, 1, 2, kWarps / 2}};
// The numbers of thread blocks that may share a sum.
constexpr int64_t kGemmSplits[] = {1, 2, 4, 8, 16};

// A pipeline stage has this many k-steps of the tensor cores (32 bytes of each row). Few large stages: each costs a
// __syncthreads(). Half as many for sums shorter than kLongSum elements.
constexpr int64_t kStageSteps = 8, kLongSum = 512;
// Stages in the pipeline. Their loads wait for the L2 cache, so as many as fit.
constexpr int64_t kFewestStages = 2, kMostStages = 6;

// What a multiprocessor gets from the L2 cache, in bytes per nanosecond, while all others read, too. Measured on an
// H200: 26 bytes per cycle.
constexpr double kL2BytesPerNanosecond = 50;
// Bytes per element of the result that its epilogue moves: as much as to read an f32 and to write one.
constexpr double kEpilogueBytes = 8;
// Bytes per element of a tile to exchange partial sums: an f32 is written and read.
constexpr double kPartialSumBytes = 8;
// Bytes of a float that thread blocks with the same rows exchange: it is sent with the number of the execution.
constexpr int64_t kExchangedBytes = 8;
// The time of a thread block besides its data and instructions: its start, and the latency of its first loads.
constexpr double kBlockTime = 700;
// The time of a pipeline stage besides its data and instructions: a __syncthreads().
constexpr double kStageTime = 100;
// The time of an instruction that all warps of a thread block execute. Measured on an H200.
constexpr double kInstructionTime = 8;
// Instructions to copy 16 bytes per thread from global to shared memory: addresses, bounds, the copy.
constexpr double kCopyInstructions = 7;
// The time of split-K: in total, per thread block that shares a sum, and per element of the tile. Chosen by measuring
// training steps on an H200: small tiles gain from shared sums, large ones lose.
constexpr double kSplitTime = 300, kTimePerSplit = 60, kSplitTimePerElement = 0.22;
// The share of the time that depends on the number of rounds in which the multiprocessors compute all thread blocks.
// The rest is proportional to the thread blocks: of two choices with equal rounds, the one that uses less of the GPU
// is cheaper.
constexpr double kRoundsShare = 0.9, kBlocksShare = 0.1;

// Load instructions of a warp per k-step, for each 16 rows of the first matrix and each 8 columns of the second.
struct OperandLoads {
  double rows, columns;
};
constexpr OperandLoads kLoadsF32 = {3, 1.75};
constexpr OperandLoads kLoads16 = {1, 0.5};
// The same if the operand of a 16-bit product is f32 in memory: loads of two or four elements, and a conversion for
// each two.
constexpr OperandLoads kLoadsRounded = {8, 3};
// The same for a transposed matrix.
constexpr OperandLoads kLoadsRoundedTransposed = {6, 4};

// Products that compute operands themselves (producer fusion).

// Elements of an operand that a thread block computes at a time: 8 x 4 per thread.
constexpr int64_t kComputedAtOnce = int64_t{32} * kStepThreads;
// The time of each further pass of that many elements: two dependent loads. Measured on an H200: 3,600 cycles.
constexpr double kComputedPassTime = 1500;
// What a product may take longer because it computes operands instead of reading them, if that saves a phase: about the
// time of a short phase and its grid barrier. Measured on an H200: a grid barrier takes 1.2 microseconds.
constexpr double kPhaseTime = 2000;
// What a product may take longer for each operand that it reads as f32 and rounds itself: about the time to round a
// million elements in advance, and of a grid barrier.
constexpr double kRoundingTime = 1500;
// Which operands readers compute (inline_producers()). Equations per element: each reader evaluates all of them.
constexpr int kMostInlinedEquations = 8;
// Operands with equations must be this many times larger than what is read to compute them, so that readers save more
// than they compute.
constexpr int64_t kInlinedBytesRatio = 2;
// Bytes of a value that is so small that its readers may compute it, whatever they save, even if it is also written.
constexpr int64_t kRecomputedBytes = 4096;
// Fragments (16 x 8 elements of the result) of a warp above which threads have no free registers.
constexpr int64_t kFragmentsWithFreeRegisters = 4;

// Products with small matrices, row by row (row_product_text.h).

// Elements of the second matrix, all of which every thread block reads.
constexpr int64_t kRowProductElements = 16384;
// Rows per thread block, which reads the second matrix for each of them.
constexpr int64_t kRowProductRows = 4;

// Small tasks. One thread block runs several of them one after another (TaskForm::chain).

// Thread blocks, and multiplications and additions of products, that a small task has at most.
constexpr int64_t kChainBlocks = 2;
constexpr double kChainOperations = 1e4;
inline bool is_small(const CudaStep& step) {
  return step.blocks <= kChainBlocks && step.operations <= kChainOperations && !step.cooperative;
}

// Tasks range by range (TaskForm::ranges).

// Ranges: with fewer, most of the GPU would be idle.
constexpr int64_t kFewestRanges = 8;
// Bytes of a range of a value that stays in shared memory, and of a complete operand that is prefetched for other
// members than products.
constexpr int64_t kMostRangeBytes = 16384;
// Bytes of all of these. With the shared memory of the members, it is within what any GPU has.
constexpr int64_t kMostBytesOfRanges = 48 << 10;
// Members from which on all their operands are prefetched: then thread blocks wait for operands only once.
constexpr size_t kMembersToPrefetch = 5;
// Entries of CudaStep::prefetches: the bits of `prefetched`.
constexpr size_t kMostPrefetches = 32;

// Products with exchanged partial sums (TaskForm::exchange).

// Bytes of a row of a value that every thread block with this row computes for itself.
constexpr int64_t kMostRowBytes = 512;
// Bytes of an operand of which every thread block copies all elements to shared memory.
constexpr int64_t kMostCopiedBytes = 4096;

// Elementwise programs, and ops that move elements.

// Multiprocessors of a large GPU. Independent elements are divided over one thread block for each.
constexpr int64_t kElementProcessors = 132;
// Elements that a thread has in flight at most: of programs, and of ops that move elements.
constexpr int64_t kProgramElementsPerThread = 8, kMovedElementsPerThread = 4;
// Equations and inputs, of all elements that a thread has in flight.
constexpr int64_t kEquationsPerThread = 96;
// Vectors of four elements that a thread has in flight at most.
constexpr int64_t kVectorsPerThread = 4;
// Elements from which on a kernel of its own computes four at a time.
constexpr int64_t kFewestForVectors = 1 << 16;
// Elements that a thread computes at most if tasks run range by range: a few dozen.
constexpr int64_t kRangeElementsPerThread = 32;

// Reductions.

// Thread blocks among which the elements are divided: enough for any GPU; fewer if each thread reads vectors of four,
// and so has four times as much in flight.
constexpr int64_t kReduceBlocks = 512, kReduceVectorBlocks = 128;
// Elements that a thread has in flight.
constexpr int64_t kReduceElementsPerThread = 16;
// Elements too few for another thread block.
constexpr int64_t kReduceElementsPerBlock = kStepThreads * kReduceElementsPerThread;
// Sums of columns that are computed with the elements: bytes of the matrix from which on this is faster than reading it
// again, since a cache does not hold it; and thread blocks, two for each multiprocessor of a large GPU.
constexpr int64_t kFewestBytesForColumnSums = int64_t{40} << 20, kColumnSumBlocks = 264;
// Elements for which one thread block is enough.
constexpr int64_t kReduceInOneBlock = 4096;
// Elements of a row from which on a thread block reduces one row at a time; 8 rows from kReduceShortRow on, else 32.
constexpr int64_t kReduceLongRow = 128, kReduceShortRow = 32;
// Columns that a thread block of a range reduces at a time, and rows that it reads at most.
constexpr int64_t kRangeColumns = 16, kMostRangeColumns = 128, kMostRangeRows = 1024;
// Elements up to which one thread finds the largest or smallest; a warp does for more.
constexpr int64_t kArgElementsPerThread = 16;

// Cross-entropy.

// Classes up to which a warp computes a row: at most 16 vectors of 16 bytes of f32 for each of its threads.
constexpr int64_t kWarpClasses = 2048;
// Bytes of a row of logits that a thread block keeps in shared memory: two thread blocks fit a multiprocessor.
constexpr int64_t kHeldLogitsBytes = 112 << 10;

// Updates of tables (scatter_add).

// Comparisons of elements with indices up to which each element looks for its updates among all indices. For more, and
// at least kScatterFewIndices of them, the indices are sorted first, which takes several kernels.
constexpr int64_t kScatterComparisons = int64_t{1} << 25, kScatterFewIndices = 16;

// Cumulative sums.

// A thread adds up a complete line if lines have at most kScanShortLine elements, or if at least kScanManyLines lines
// are adjacent.
constexpr int64_t kScanShortLine = 32, kScanManyLines = 16384;

// Convolutions as implicit matrix products (conv_text.h).

// Thread blocks that keep a large GPU busy. Sums are shared among more thread blocks only up to this number.
constexpr int64_t kConvBlocks = 4 * 132;
// Tiles along the sum that a thread block has at least if it shares the sum.
constexpr int64_t kConvTilesPerSplit = 8;
// Elements of the sum from which on tiles of 128 rows are faster, if there are still kConvBlocks thread blocks.
constexpr int64_t kConvLongSum = 128;

// Convolutions with images in shared memory (conv_image_text.h).

// Elements of a window up to which they are gathered one by one, where channels do not fill vectors.
constexpr int64_t kConvGatheredWindow = 64;
// Pixels of a thread block's band of an image.
constexpr int64_t kConvBandPixels = 256;
// Of the pipeline over the filter: channels per stage, bytes of a stage with several positions of the window, stages.
constexpr int64_t kConvStageChannels = 64, kConvStageBytes = 48 << 10, kConvMostStages = 8;
// Units of 16 x 32 results that a warp holds in registers for the gradient of the filter.
constexpr int64_t kConvUnitsPerWarp = 4;

// Pooling.

// The largest window of which a thread holds all gradients in registers, in pixels.
constexpr int64_t kWindowPixelsPerThread = 16;

// Attention.

// Bytes of keys and values that heads with adjacent thread blocks may have together: they stay in the L2 cache (of which
// an H200 has 50 MB).
constexpr int64_t kAttentionCacheBytes = int64_t{16} << 20;
// Shared memory of a thread block of which two fit a multiprocessor (227 KB on Hopper).
constexpr int64_t kAttentionSharedBytes = int64_t{112} << 10;

// Persistent kernels: which rows they contain.

// Thread blocks of a task per multiprocessor. A row with more is launched by itself: a launch costs it little.
constexpr int64_t kMostBlocksPerProcessor = 8;
// Multiplications and additions of a product. A larger one is launched by itself.
constexpr double kMostJoinedOperations = 1.5e9;
// Pointers of a kernel: 4 KiB of parameters. A copy of them fits into kReservedSharedBytes.
constexpr size_t kMostPointers = 480;
// Elements of an equation up to which it is moved next to others (gather_small()).
constexpr int64_t kMostGatheredElements = 8192;
// Bytes of the arena up to which memory is not reused: reuse would order tasks that could otherwise share a phase.
constexpr int64_t kNoReuseBytes = int64_t{64} << 20;

// Persistent kernels: their phases.

// Multiplications and additions per multiprocessor from which on the products of a phase use all of the GPU.
constexpr double kFullPhaseOperations = 1e6;
// A task with at most this share of the operations of such a phase is moved to a later one.
constexpr double kMovedShare = 1.0 / 8;
// Multiprocessors that are worth dividing work among.
constexpr int64_t kFewProcessors = 8;
// What a task gets if fewer are left: 1 / this of all multiprocessors. Of a product, and of another task.
constexpr int kLeastProductShare = 8, kLeastOtherShare = 4;
// Tasks of a last phase that overlaps the next round's first phase: the last thread blocks run them one by one.
constexpr size_t kMostOverlappedTasks = 4;

}  // namespace lockstep::cost_model
