#include "core/kv_trace.h"

namespace specdec {
namespace {

template <class T>
void subtract(std::vector<T>& numbers, const std::vector<T>& before) {
  for (size_t i = 0; i < before.size(); ++i) {
    numbers[i] -= before[i];
  }
}

}  // namespace

KvTrace operator-(const KvTrace& after, const KvTrace& before) {
  KvTrace between = after;
  between.forwards -= before.forwards;
  for (size_t i = 0; i < before.layers.size(); ++i) {
    KvTrace::Layer& layer = between.layers[i];
    layer.written -= before.layers[i].written;
    layer.nodes -= before.layers[i].nodes;
    subtract(layer.keys, before.layers[i].keys);
    subtract(layer.mass, before.layers[i].mass);
  }
  for (size_t group = 0; group < before.pages.size(); ++group) {
    for (size_t page = 0; page < before.pages[group].size(); ++page) {
      between.pages[group][page].written -= before.pages[group][page].written;
      between.pages[group][page].read -= before.pages[group][page].read;
    }
  }
  return between;
}

}  // namespace specdec
