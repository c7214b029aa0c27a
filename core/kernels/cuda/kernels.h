#pragma once
#include <cstdint>

#include "core/kernels/cuda/sampling_kernels.h"
#include "core/kernels/device/kv_format.h"
#include "core/kernels/device/weight_format.h"

/// The CUDA kernels' C interface: what core/kernels/ does on the CPU, on plain pointers to device
/// memory. Calls are in order on `stream` (a cudaStream_t) and return before the work is done. The
/// result is the cudaError_t of the launch, 0 = none; kInvalidValue for what a kernel cannot take.
/// Other arguments are checked by the caller. Numbers are float32 and arrays contiguous where
/// nothing else is said. A row's bits depend on its own numbers and sizes alone, not on how many
/// rows there are.
namespace specdec::cuda {

/// out = input * (mean(input^2) + eps)^-1/2 * scale, or out += that. `scale` as it is multiplied:
/// 1 + w in Gemma; nullptr = out is the input, or out += it. With `next`, normed = out normalised
/// by that scale. With `split`, normed or else out is split too.
struct RmsNormTask {
  const float* input;  ///< [rows, size]
  const float* scale;  ///< [size]
  float* out;          ///< [rows, size]; may be the input
  int32_t rows, size;
  float eps;
  bool add;
  const float* next = nullptr;  ///< [size]
  float* normed = nullptr;      ///< [rows, size]; not out
  void* split = nullptr;        ///< as TensorLinearTask::workspace
};

/// activation(gate) * up. With `split`, it is split too.
struct GatedActivationTask {
  const float* gate_up;  ///< [rows, 2 * size], gate first
  float* out;            ///< [rows, size]
  int64_t rows, size;
  bool silu;              ///< else GELU with tanh
  void* split = nullptr;  ///< as TensorLinearTask::workspace
};

/// out[i] = one of several functions of input[i].
struct ElementwiseTask {
  enum class Kind { kAdd, kSoftCap };
  Kind kind;
  const float* input;
  float* out;  ///< kAdd: out += input; may be the input
  int64_t size;
  float number;  ///< kSoftCap: the cap
};

/// out[r * out_stride + c] = factor * input[r * columns + c] * scale[c]: copies, columns of a wider
/// array.
struct CopyRowsTask {
  const float* input;  ///< [rows, columns]
  const float* scale;  ///< [columns], or nullptr = 1
  float* out;          ///< may be the input where out_stride is `columns`
  int64_t out_stride;
  int64_t rows;
  int32_t columns;
  float factor;
};

/// Tokens that may not be generated: their logits become -inf.
struct ForbidTask {
  float* logits;              ///< [rows, size]
  const int64_t* suppressed;  ///< [count] columns below size
  int32_t rows, size;
  int32_t usable;  ///< columns from here on are forbidden too
  int32_t count;
};

/// Numbers of a row that a block of argmax looks through.
constexpr int32_t kCudaArgmaxChunk = 8192;

/// The two largest numbers of each row, and the id of the largest: the lowest on a tie.
struct ArgmaxTask {
  const float* rows;  ///< of row r: rows[r * stride ..]
  int32_t* ids;       ///< [count]; -1 where a number of the row is NaN
  float* largest;     ///< [count, 2] the larger first; -inf where there is no second
  int64_t stride;
  int32_t count, size;  ///< rows, and numbers of each that count
  float* workspace;     ///< specdec_cuda_argmax_workspace() numbers; what they are means nothing
  /// [count] the ids, 0 for -1, by their names: tokens that a forward may be fed. nullptr = nobody
  /// asks.
  int32_t* tokens = nullptr;
  const int32_t* names = nullptr;  ///< [size] tokens of the columns; nullptr = each is its own
};

/// Recent keys and values as they are: ExactPages as pointers. Pages of their cache's size.
struct ExactCache {
  float* keys;                ///< [pages, kv_heads, head_dim, page_size]
  float* values;              ///< [pages, kv_heads, page_size, head_dim]
  const int32_t* page_table;  ///< with the cache's stride
  int32_t recent;             ///< last positions that are read here; 0 = there are none
  int32_t multiple;           ///< what is read here begins at a multiple of it
};

/// One layer's cache and the forward's tables: KvView and BatchTables as pointers.
struct PagedCache {
  void* keys;    ///< [pages, kv_heads, width, page_size]
  void* values;  ///< [pages, kv_heads, page_size, width]
  KvFormat format;
  bool hadamard;  ///< keys, values and queries are multiplied; see core/kernels/hadamard.h
  int32_t kv_heads, head_dim, page_size;
  int32_t width;             ///< elements of a key or value
  int32_t window;            ///< 0 = all
  int32_t sink;              ///< first positions that are seen beside the window
  int32_t page_stride;       ///< from a row of page_table to the next
  const int32_t* rows;       ///< [nodes]
  const int32_t* slots;      ///< [nodes]
  const int32_t* positions;  ///< [nodes]; -1 = the node is padding
  const int32_t* angles;     ///< [nodes] position that its queries and keys are rotated by
  const int32_t* path_starts;
  const int32_t* paths;
  const int32_t* lengths;
  const int32_t* page_table;
  const float* levels;  ///< [2, kv_heads, 8] of kQ3: of keys, then values; nullptr = kNormalLevels
  ExactCache exact;
};

/// Means that nodes see in place of old keys and values: PooledKeys as pointers.
struct PooledCache {
  float* keys;    ///< [rows, kv_heads, head_dim, columns]; nullptr = there are none
  float* values;  ///< [rows, kv_heads, columns, head_dim]
  int32_t* made;  ///< [rows, 2 * kv_heads] means of each head's keys, then values
  int32_t columns;
  int32_t own_first;      ///< column of node 0's own means
  int32_t own_each;       ///< columns of a node
  int32_t chunk, recent;  ///< of Pooling
  float log_chunk;        ///< what is added to a mean's score
};

/// Makes the means that nodes see and that are missing, of the numbers that the pages hold.
struct PoolKeysTask {
  PagedCache cache;
  PooledCache pooled;
  int32_t nodes;
};

/// Rounds the groups of keys that nodes complete; see core/kernels/key_groups.h. Of kKivi2 and
/// kKivi4, whose pages hold whole groups.
struct RoundKeysTask {
  PagedCache cache;
  int32_t nodes;
};

/// The step from a fused projection to attention's inputs; see core/kernels/qkv.h. Of kKivi2 and
/// kKivi4 keys are written to the exact pages alone, for specdec_cuda_round_keys.
struct QkvToCacheTask {
  const float* qkv;      ///< [nodes, (heads + kv_projections * kv_heads) * head_dim]
  const float* q_scale;  ///< [head_dim], or nullptr = no norm
  const float* k_scale;
  const float* cosines;  ///< [more than any angle, head_dim / 2]
  const float* sines;
  float* queries;    ///< [nodes, heads, head_dim]; heads may be 0: keys and values alone
  PagedCache cache;  ///< of any keys and values where kv_projections is 0: they stay as they are
  int32_t nodes, heads;
  float eps;
  int32_t kv_projections;  ///< 2 = keys and values; 1 = keys, whose raw numbers are the values too;
                           ///< 0 = none
  bool value_norm;         ///< each head of v is normed, without a scale
};

/// What head_dim is a multiple of where attention splits its results for a product.
constexpr int32_t kSplitDim = 32;

/// Positions of a chunk of attention.
constexpr int32_t kCudaAttentionChunk = 128;

/// Attention of new nodes over one layer's cache; see core/kernels/attention.h. Chunks are shorter:
/// those of means come first and those of exact pages last. Products are made on tensor cores, of
/// queries and weights as three bfloat16 numbers each and of keys and values as many as carry all
/// their bits; head_dim is even. A node's bits depend on what it sees alone.
struct PagedAttentionTask {
  const float* queries;  ///< [nodes, heads, head_dim]
  float* out;            ///< [nodes, heads, head_dim]; zeros for padding
  PagedCache cache;
  const float* bias;  ///< [nodes, bias_columns], or nullptr
  int32_t bias_columns;
  int32_t nodes, heads;
  int32_t chunks;  ///< from position 0, at least to the last position; 0 = all are read exactly
  PooledCache pooled;
  int32_t mean_chunks;   ///< chunks of means from the first on, at least to the last one; 0 = none
  int32_t exact_chunks;  ///< most chunks that a node reads in exact pages; 0 = none
  float scale, soft_cap;
  float* workspace;  ///< specdec_cuda_attention_workspace() numbers; what they are means nothing
  /// Memory as TensorLinearTask::workspace, for rows of all heads: `out` is written there too,
  /// split, where head_dim is a multiple of kSplitDim; nullptr = it is not.
  void* split = nullptr;
};

/// out = input * weight^T + bias. How a sum is cut depends on the number of inputs alone.
struct LinearTask {
  const float* weight;  ///< [outputs, in]
  const float* bias;    ///< [outputs], or nullptr
  const float* input;   ///< [rows, in]
  float* out;           ///< row r at out[r * out_stride]
  int64_t out_stride;
  int32_t rows, in, outputs;
};

/// out = factor * rows `ids` of the weight.
struct EmbedRowsTask {
  const void* weight;   ///< [outputs, in]
  WeightFormat format;  ///< kFloat32; another one for specdec_cuda_embed_fragments
  const int32_t* ids;   ///< [count]
  float* out;           ///< [count, in]
  float factor;
  int32_t count, in;
  int32_t outputs;  ///< of the weight; specdec_cuda_embed_fragments reads it
};

/// Cuts the gate half of each row in place; see core/kernels/sparse_gate.h.
struct CutGateTask {
  float* gate_up;  ///< [rows, 2 * size], gate first
  int32_t rows, size;
  float deviations;
};

/// See core/kernels/per_layer_inputs.h.
struct PerLayerInputsTask {
  const float* context;  ///< [rows, layers * size]
  const float* token;    ///< [rows, layers * size]
  const float* norm;     ///< [size]
  float* out;            ///< [layers, rows, size]
  int32_t rows, layers, size;
  float eps, context_scale;
};

/// The most residual streams of AltUp.
constexpr int32_t kCudaStreams = 8;

/// See core/kernels/altup.h, here and in what follows.
struct AltUpRouteTask {
  const float* input;   ///< [rows, size]
  const float* weight;  ///< [streams, size]
  const float* norm;    ///< [size]
  float* out;           ///< [rows, streams]
  int32_t rows, streams, size;
  float eps;
};

struct AltUpPredictTask {
  const float* streams;       ///< [count, rows, size]
  const float* routes;        ///< [rows, count]
  const float* coefficients;  ///< [count * count, count]
  float* out;                 ///< [count, rows, size]; may be the streams
  int32_t rows, count, size;
};

struct AltUpCorrectTask {
  const float* activated;     ///< [rows, size]
  const float* routes;        ///< [rows, count]
  const float* coefficients;  ///< [count, count]
  float* streams;             ///< [count, rows, size]
  int32_t rows, count, active, size;
};

/// Gives each row of `values` the root mean square of that row of `like`.
struct MatchRmsTask {
  const float* like;  ///< [rows, size]
  float* values;      ///< [rows, size]
  int32_t rows, size;
};

/// out[i] = the mean of streams[s * size + i] over s.
struct MeanStreamTask {
  const float* streams;  ///< [count, size]
  float* out;            ///< [size]
  int32_t count;
  int64_t size;  ///< of all rows
};

/// Chooses experts by a router's logits; see route of core/kernels/experts.h.
struct RouteTask {
  const float* logits;        ///< [rows, count]
  const float* output_scale;  ///< [count]
  int32_t* experts;           ///< [rows, chosen]
  float* weights;             ///< [rows, chosen]
  int32_t rows, count, chosen;
};

/// Products of pairs of a token and one of its experts, p = token * chosen + rank, with the
/// expert's matrix: out[p] = weight(experts[p]) * input[p / rows_share]. Each expert's matrix is
/// read once for all its pairs (up to what a block holds); a pair's bits depend on its own numbers
/// alone. Experts that nobody chose cost nothing.
struct ExpertLinearTask {
  const void* weight;      ///< [count][outputs, in], of expert e at e * expert_bytes
  int64_t expert_bytes;    ///< a multiple of 4; of 16 for specdec_cuda_tensor_experts
  WeightFormat format;     ///< kFloat32; another one for specdec_cuda_tensor_experts
  const int32_t* experts;  ///< [pairs]; a pair without an expert in 0 .. count - 1 is left as it is
  const float* input;      ///< [pairs / rows_share, in]
  float* out;              ///< [pairs, outputs]
  int32_t pairs;
  int32_t rows_share;  ///< pairs of a row of the input
  int32_t count;       ///< experts
  int32_t in, outputs;
  /// Workspace of specdec_cuda_tensor_experts: specdec_cuda_split_bytes() bytes for [pairs /
  /// rows_share, in], at a multiple of 16.
  void* workspace = nullptr;
  bool is_split = false;  ///< as in TensorLinearTask
};

/// out[n] = the sum over ranks, in their order, of weights[n, rank] * outputs[n, rank].
struct ExpertSumTask {
  const float* outputs;  ///< [rows, chosen, size]
  const float* weights;  ///< [rows, chosen]
  float* out;            ///< [rows, size]
  int32_t rows, chosen, size;
};

/// States of a new node over recurrent layers: NodeState of core/kernels/recurrence.h.
struct RecurrenceNode {
  int32_t parent, before, after;
};

/// The branch of a recurrent block through its convolution and its recurrence; see recurrence of
/// core/kernels/recurrence.h.
struct RecurrenceTask {
  float* branches;                ///< [count, 2 * channels]; the second half of a row is replaced
  float* states;                  ///< of state s the layer's [width, channels] at s * state_stride
  const RecurrenceNode* nodes;    ///< [count]
  const float* convolution;       ///< [width, channels]
  const float* convolution_bias;  ///< [channels], as those below
  const float* input_gate;        ///< [blocks, size, size], size = channels / blocks
  const float* input_gate_bias;
  const float* decay_gate;  ///< as input_gate
  const float* decay_gate_bias;
  const float* decay;
  float* workspace;  ///< specdec_cuda_recurrence_workspace() numbers
  int64_t state_stride;
  int32_t count;  ///< nodes
  int32_t channels, width, blocks;
};

/// A linear product (LinearTask) with other formats, on tensor cores: inputs are split into three
/// bfloat16 numbers each, which carry all their bits. How a sum is cut depends on the number of
/// inputs and the format alone.
struct TensorLinearTask {
  const void* fragments;  ///< specdec_cuda_fragment_bytes() bytes, at a multiple of 16, as
                          ///< core/kernels/weight_fragments.h arranges a matrix
  const float* bias;      ///< [outputs], or nullptr
  const float* input;     ///< [rows, in]
  void* workspace;  ///< specdec_cuda_split_bytes() bytes, at a multiple of 16: the inputs, split
  float* out;       ///< row r at out[r * out_stride]
  int64_t out_stride;
  int32_t rows, in, outputs;
  WeightFormat format = WeightFormat::kBFloat16;
  bool is_split = false;  ///< whether the workspace holds them already
};

extern "C" {
int specdec_cuda_rms_norm(const RmsNormTask* task, void* stream);
int specdec_cuda_gated_activation(const GatedActivationTask* task, void* stream);
int specdec_cuda_elementwise(const ElementwiseTask* task, void* stream);
int specdec_cuda_copy_rows(const CopyRowsTask* task, void* stream);
int specdec_cuda_forbid(const ForbidTask* task, void* stream);
int64_t specdec_cuda_argmax_workspace(const ArgmaxTask* task);
int specdec_cuda_argmax(const ArgmaxTask* task, void* stream);
int specdec_cuda_qkv_to_cache(const QkvToCacheTask* task, void* stream);
int specdec_cuda_round_keys(const RoundKeysTask* task, void* stream);
int specdec_cuda_linear(const LinearTask* task, void* stream);
/// 0 for float32, which tensor cores do not take.
int64_t specdec_cuda_fragment_bytes(int32_t outputs, int32_t in,
                                    WeightFormat format = WeightFormat::kBFloat16);
int64_t specdec_cuda_split_bytes(int32_t rows, int32_t in);
int specdec_cuda_tensor_linear(const TensorLinearTask* task, void* stream);
int specdec_cuda_embed_rows(const EmbedRowsTask* task, void* stream);
/// specdec_cuda_embed_rows with a weight that is arranged for tensor cores.
int specdec_cuda_embed_fragments(const EmbedRowsTask* task, void* stream);
int specdec_cuda_cut_gate(const CutGateTask* task, void* stream);
int specdec_cuda_per_layer_inputs(const PerLayerInputsTask* task, void* stream);
int specdec_cuda_altup_route(const AltUpRouteTask* task, void* stream);
int specdec_cuda_altup_predict(const AltUpPredictTask* task, void* stream);
int specdec_cuda_altup_correct(const AltUpCorrectTask* task, void* stream);
int specdec_cuda_match_rms(const MatchRmsTask* task, void* stream);
int specdec_cuda_mean_stream(const MeanStreamTask* task, void* stream);
int specdec_cuda_route(const RouteTask* task, void* stream);
int specdec_cuda_expert_linear(const ExpertLinearTask* task, void* stream);
/// specdec_cuda_expert_linear on tensor cores, with matrices in fragments: a pair has the bits that
/// specdec_cuda_tensor_linear gives its row with its expert's matrix.
int specdec_cuda_tensor_experts(const ExpertLinearTask* task, void* stream);
int specdec_cuda_expert_sum(const ExpertSumTask* task, void* stream);
int64_t specdec_cuda_recurrence_workspace(const RecurrenceTask* task);
int specdec_cuda_recurrence(const RecurrenceTask* task, void* stream);
int specdec_cuda_pool_keys(const PoolKeysTask* task, void* stream);
int64_t specdec_cuda_attention_workspace(const PagedAttentionTask* task);
int specdec_cuda_paged_attention(const PagedAttentionTask* task, void* stream);
}

}  // namespace specdec::cuda
