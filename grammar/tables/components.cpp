#include "grammar/tables/components.h"

#include <algorithm>

namespace specdec {
namespace {

class Search {
 public:
  explicit Search(const std::vector<std::vector<uint32_t>>& edges)
      : edges_(edges), order_(edges.size(), 0), low_(edges.size(), 0) {}

  std::vector<std::vector<uint32_t>> run() {
    for (uint32_t node = 0; node < edges_.size(); ++node) {
      if (order_[node] == 0) {
        visit(node);
      }
    }
    return std::move(components_);
  }

 private:
  static constexpr uint32_t kClosed = ~0U;
  struct Frame {
    uint32_t node = 0;
    size_t edge = 0;
  };

  void visit(uint32_t root) {
    open(root);
    while (!frames_.empty()) {
      const uint32_t node = frames_.back().node;
      if (frames_.back().edge == edges_[node].size()) {
        close();
        continue;
      }
      const uint32_t target = edges_[node][frames_.back().edge++];
      if (order_[target] == 0) {
        open(target);
      } else if (order_[target] != kClosed) {
        low_[node] = std::min(low_[node], order_[target]);
      }
    }
  }

  void open(uint32_t node) {
    order_[node] = low_[node] = ++count_;
    stack_.push_back(node);
    frames_.push_back({node, 0});
  }

  void close() {
    const uint32_t node = frames_.back().node;
    frames_.pop_back();
    if (!frames_.empty()) {
      uint32_t& above = low_[frames_.back().node];
      above = std::min(above, low_[node]);
    }
    if (low_[node] != order_[node]) {
      return;
    }
    std::vector<uint32_t> component;
    do {
      component.push_back(stack_.back());
      order_[stack_.back()] = kClosed;
      stack_.pop_back();
    } while (component.back() != node);
    std::sort(component.begin(), component.end());
    components_.push_back(std::move(component));
  }

  const std::vector<std::vector<uint32_t>>& edges_;
  std::vector<uint32_t> order_;  ///< from 1 on; 0 before the visit
  std::vector<uint32_t> low_;
  std::vector<uint32_t> stack_;
  std::vector<Frame> frames_;
  std::vector<std::vector<uint32_t>> components_;
  uint32_t count_ = 0;
};

}  // namespace

std::vector<std::vector<uint32_t>> components_of(const std::vector<std::vector<uint32_t>>& edges) {
  return Search(edges).run();
}

}  // namespace specdec
