#include "experiments/metrics/cache_records.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace specdec {
namespace {

nlohmann::ordered_json used_pages_json(const std::vector<KvTrace::Page>& pages) {
  auto json = nlohmann::ordered_json::array();
  for (size_t page = 0; page < pages.size(); ++page) {
    if (pages[page].written > 0 || pages[page].read > 0) {
      json.push_back({page, pages[page].written, pages[page].read});
    }
  }
  return json;
}

constexpr std::pair<const char*, int64_t KvTiers::*> kTierBytes[] = {
    {"memory_bytes", &KvTiers::memory_bytes},
    {"peak_memory_bytes", &KvTiers::peak_memory_bytes},
    {"host_bytes", &KvTiers::host_bytes},
    {"disk_bytes", &KvTiers::disk_bytes}};
constexpr std::pair<const char*, int64_t KvTiers::*> kTierCounts[] = {
    {"accesses", &KvTiers::accesses},
    {"promotions", &KvTiers::promotions},
    {"demotions", &KvTiers::demotions},
    {"read_bytes", &KvTiers::read_bytes},
    {"written_bytes", &KvTiers::written_bytes}};

constexpr int64_t kMostPages = int64_t{1} << 24;  // of the longest text, one token a page

std::vector<KvTrace::Page> parse_used_pages(const std::vector<std::vector<int64_t>>& entries,
                                            const RecordKeys& keys) {
  std::vector<KvTrace::Page> pages;
  for (const auto& entry : entries) {
    if (entry.size() != 3 || entry[0] < std::ssize(pages) || entry[0] >= kMostPages) {
      keys.fail("pages", "must hold [page, written, read], by ascending page");
    }
    pages.resize(static_cast<size_t>(entry[0]) + 1);
    pages.back() = {.written = entry[1], .read = entry[2]};
  }
  return pages;
}

}  // namespace

nlohmann::ordered_json cache_trace_json(const KvTrace& trace) {
  auto layers = nlohmann::ordered_json::array();
  for (const KvTrace::Layer& layer : trace.layers) {
    layers.push_back({{"written", layer.written},
                      {"nodes", layer.nodes},
                      {"keys", layer.keys},
                      {"mass", layer.mass}});
  }
  auto pages = nlohmann::ordered_json::array();
  for (const auto& group : trace.pages) {
    pages.push_back(used_pages_json(group));
  }
  return {{"forwards", trace.forwards}, {"layers", layers}, {"pages", pages}};
}

KvTrace parse_cache_trace(const RecordKeys& keys) {
  KvTrace trace{.forwards = keys.count("forwards")};
  for (const RecordKeys& layer : keys.objects("layers")) {
    trace.layers.push_back({.written = layer.count("written"),
                            .nodes = layer.count("nodes"),
                            .keys = layer.counts("keys"),
                            .mass = layer.numbers("mass")});
  }
  const auto& groups = keys.list("pages");
  for (size_t i = 0; i < groups.size(); ++i) {
    const nlohmann::json group = {{"pages", groups[i]}};
    trace.pages.push_back(
        parse_used_pages(RecordKeys(group, "cache_trace").count_lists("pages"), keys));
  }
  return trace;
}

KvTiers tiers_between(const KvTiers& before, KvTiers after) {
  for (const auto& [name, count] : kTierCounts) {
    after.*count -= before.*count;
  }
  after.wait_seconds -= before.wait_seconds;
  return after;
}

void add_tiers(const KvTiers& more, KvTiers& sum) {
  for (const auto& [name, bytes] : kTierBytes) {
    sum.*bytes = std::max(sum.*bytes, more.*bytes);
  }
  for (const auto& [name, count] : kTierCounts) {
    sum.*count += more.*count;
  }
  sum.wait_seconds += more.wait_seconds;
}

nlohmann::ordered_json cache_tiers_json(const KvTiers& tiers) {
  nlohmann::ordered_json json;
  for (const auto& [name, bytes] : kTierBytes) {
    json[name] = tiers.*bytes;
  }
  for (const auto& [name, count] : kTierCounts) {
    json[name] = tiers.*count;
  }
  json["wait_seconds"] = tiers.wait_seconds;
  return json;
}

KvTiers parse_cache_tiers(const RecordKeys& keys) {
  KvTiers tiers;
  for (const auto& [name, bytes] : kTierBytes) {
    tiers.*bytes = keys.count(name, 0);  // older runs have no host_bytes
  }
  for (const auto& [name, count] : kTierCounts) {
    tiers.*count = keys.count(name);
  }
  tiers.wait_seconds = keys.amount("wait_seconds");
  return tiers;
}

}  // namespace specdec
