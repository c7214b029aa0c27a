#pragma once
#include "core/kernels/device/portable.h"

// Which drafted tokens stay: the one statement of exact matching, rejection and block verification.
// The verifiers of decoders/verifiers/ call these functions with the host's randomness, and certify
// with enumerated choices; the kernels of each device with uniform numbers in [0, 1).
//
// `draft` points to what walks a draft, whose node 0 is its root:
//   child_after(node, last)  the next child of a node behind child `last`, or the first one behind
//                            `node`; -1 = none
//   enter(node)              the node stays; probabilities are those after it from now on
// and what each function says beside. `draws` points to what decides by chance:
//   accepts(target, drafted) true with probability min(1, target / drafted), drafted > 0
// Real: float64, where there is one.

namespace specdec::portable {

/// Whether a token is accepted to which the target gives `target` and the drafter gave `drafted`,
/// above 0.
template <class Real>
SPECDEC_DEVICE bool accepts(Real uniform, Real target, Real drafted) {
  return uniform < target / drafted;
}

/// Weight of a token after a rejection: of the distribution that the next token is drawn from.
template <class Real>
SPECDEC_DEVICE Real residual_weight(Real target, Real drafted) {
  return target > drafted ? target - drafted : Real{0};
}

/// The first index at which the sum of the weights exceeds `target`, or the last one of a positive
/// weight; `passed` becomes the sum before it.
template <class Weights, class Real>
SPECDEC_DEVICE int32_t pick(Weights weights, int32_t count, Real target, Real& passed) {
  int32_t chosen = 0;
  Real sum = 0;
  passed = 0;
  for (int32_t i = 0; i < count && target >= sum; ++i) {
    if (weights[i] > 0) {
      chosen = i;
      passed = sum;
      sum += weights[i];
    }
  }
  return chosen;
}

/// The child of a node that holds a token, -1 = none. Of a child, draft->token(child).
template <class Draft>
SPECDEC_DEVICE int32_t child_holding(Draft draft, int32_t node, int32_t token) {
  int32_t child = draft->child_after(node, node);
  while (child >= 0 && draft->token(child) != token) {
    child = draft->child_after(node, child);
  }
  return child;
}

/// Follows a draft as long as it holds the token that draft->choose(node) says comes next; returns
/// the first choice that it does not hold. With the target's best tokens: exact matching.
template <class Draft>
SPECDEC_DEVICE int32_t match(Draft draft) {
  int32_t next = 0;
  for (int32_t node = 0; node >= 0; node = child_holding(draft, node, next)) {
    draft->enter(node);
    next = draft->choose(node);
  }
  return next;
}

/// The first of a node's children that is accepted, -1 = none; see verify_by_rejection.
template <class Draft, class Draws>
SPECDEC_DEVICE int32_t accepted_child(Draft draft, Draws draws, int32_t node) {
  int32_t child = draft->child_after(node, node);
  while (child >= 0 && !draws->accepts(draft->target(child), draft->drafted(child)) &&
         draft->reject(child)) {
    child = draft->child_after(node, child);
  }
  return child;
}

/// Speculative sampling (Leviathan et al., 2023, arXiv:2211.17192, Algorithm 1), over siblings in
/// order. draft->target(child) and drafted(child) are the child's probabilities now: reject(child)
/// leaves residual distributions of both, or is false when nothing would be left of the target's,
/// so that only rounding made the rejection possible. The next token is drawn from what is left.
template <class Draft, class Draws>
SPECDEC_DEVICE void verify_by_rejection(Draft draft, Draws draws) {
  for (int32_t node = 0; node >= 0; node = accepted_child(draft, draws, node)) {
    draft->enter(node);
  }
}

/// w_i of block verification, for i tokens: w_0 = 1, w_i = min(1, w_{i-1} p(x_i) / q(x_i)).
template <class Real, class Chain>
SPECDEC_DEVICE Real block_weight(Chain chain, int32_t tokens) {
  Real weight = 1;
#if defined(__CUDACC__)
#pragma unroll 1
#endif
  for (int32_t child = 1; child <= tokens; ++child) {
    const Real next = weight * chain->target(child) / chain->drafted(child);
    weight = next < 1 ? next : Real{1};
  }
  return weight;
}

/// h_i of fewer than all tokens, from the sum of their residual and w_i.
template <class Real>
SPECDEC_DEVICE Real block_acceptance(Real left, Real weight) {
  const Real sum = left + 1 - weight;
  return sum > 0 ? left / sum : Real{0};
}

/// Block verification of a chain of `length` tokens (Sun et al., 2025, arXiv:2403.10444,
/// Algorithm 2): the number of tokens that stay. Token i is child i. chain->leave(i, w_i) leaves
/// max(w_i p - q, 0) after i tokens and returns its sum; restore(i) leaves p. The next token is
/// drawn from what was left last. The choices are independent, so the most tokens whose choice
/// passes are sought from the end.
template <class Real, class Chain, class Draws>
SPECDEC_DEVICE int32_t verify_block(Chain chain, Draws draws, int32_t length) {
  int32_t accepted = length;
  bool passed = draws->accepts(block_weight<Real>(chain, accepted), Real{1});
  Real left = 0;
  while (!passed && accepted > 0) {
    --accepted;
    const Real weight = block_weight<Real>(chain, accepted);
    left = chain->leave(accepted, weight);
    passed = accepted == 0 || draws->accepts(block_acceptance(left, weight), Real{1});
  }
  if (!(left > 0)) {  // all tokens stay, or only rounding made the rejection possible
    chain->restore(accepted);
  }
  return accepted;
}

}  // namespace specdec::portable
