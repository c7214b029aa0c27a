#pragma once
#include <cstdint>

#include "core/kernels/cuda/kernels.h"

/// The part of the kernels' C interface (kernels.h) for heads that score some clusters of tokens.
namespace specdec::cuda {

/// Logits of the tokens of each row's best clusters; see score_clusters of
/// core/kernels/clustered_head.h. A token is scored by fused multiply-adds with the weights as
/// specdec_cuda_embed_rows and specdec_cuda_embed_fragments read them.
struct ScoreClustersTask {
  const float* centroid_scores;  ///< [rows, clusters]
  const float* states;           ///< [rows, in]
  const void* weight;            ///< [clusters * each, in]
  WeightFormat format;           ///< kFloat32; others lie in fragments
  const int32_t* tokens;         ///< [clusters, each]
  const int32_t* places;         ///< [clusters * each], the inverse
  float* logits;                 ///< [rows, clusters * each]
  float* workspace;  ///< specdec_cuda_score_clusters_workspace() numbers; they mean nothing
  int32_t rows, in;
  int32_t clusters, each;  ///< tokens of each
  int32_t chosen;          ///< clusters of a row: 1 to all
  bool fills_below;        ///< other tokens get the smallest score - 1; else -infinity
};

extern "C" {
int64_t specdec_cuda_score_clusters_workspace(const ScoreClustersTask* task);
int specdec_cuda_score_clusters(const ScoreClustersTask* task, void* stream);
}

}  // namespace specdec::cuda
