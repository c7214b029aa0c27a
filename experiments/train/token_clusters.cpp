#include "experiments/train/token_clusters.h"

#include <ATen/ATen.h>

#include <vector>

#include "core/error.h"
#include "experiments/train/head_training.h"

namespace specdec {
namespace {

constexpr int kRounds = 10;

at::Tensor directions(const at::Tensor& rows) {
  return rows / rows.norm(2, -1, /*keepdim=*/true).clamp_min(1e-12);
}

/// The clusters' tokens: each token, those that are nearest to a center first, goes to the nearest
/// center that has room.
at::Tensor assign(const at::Tensor& rows, const at::Tensor& centers) {
  const int64_t room = rows.size(0) / centers.size(0);
  const at::Tensor nearness = at::matmul(rows, centers.t());
  const at::Tensor preferences = nearness.argsort(/*stable=*/true, 1, /*descending=*/true);
  const at::Tensor order =
      nearness.amax(1).argsort(/*stable=*/true, /*dim=*/0, /*descending=*/true);
  at::Tensor tokens = at::empty({centers.size(0), room}, at::kLong);
  std::vector<int64_t> filled(static_cast<size_t>(centers.size(0)), 0);
  const auto wanted = preferences.accessor<int64_t, 2>();
  const auto next = order.accessor<int64_t, 1>();
  auto out = tokens.accessor<int64_t, 2>();
  for (int64_t i = 0; i < rows.size(0); ++i) {
    const int64_t token = next[i];
    int64_t choice = 0;
    while (filled[static_cast<size_t>(wanted[token][choice])] == room) {
      ++choice;
    }
    const int64_t cluster = wanted[token][choice];
    out[cluster][filled[static_cast<size_t>(cluster)]++] = token;
  }
  return tokens;
}

}  // namespace

at::Tensor equal_clusters(const at::Tensor& rows, const at::Tensor& token_weights,
                          int64_t clusters) {
  SPECDEC_CHECK(rows.size(0) % clusters == 0, "{} clusters of equal size of {} tokens", clusters,
                rows.size(0));
  const at::Tensor units = directions(rows.to(at::kFloat).cpu());
  at::Tensor centers = units.index_select(0, heaviest_tokens(token_weights.cpu(), clusters));
  at::Tensor tokens;
  for (int round = 0; round < kRounds; ++round) {
    tokens = assign(units, centers);
    const at::Tensor members = units.index_select(0, tokens.flatten());
    centers = directions(members.view({clusters, -1, units.size(1)}).mean(1));
  }
  return std::get<0>(tokens.sort(1));
}

}  // namespace specdec
