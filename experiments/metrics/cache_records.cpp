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

std::vector<KvTrace::Page> parse_used_pages(const nlohmann::ordered_json& json) {
  std::vector<KvTrace::Page> pages;
  for (const auto& entry : json) {  // by ascending number
    pages.resize(entry.at(0).get<size_t>() + 1);
    pages.back() = {.written = entry.at(1).get<int64_t>(), .read = entry.at(2).get<int64_t>()};
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

KvTrace parse_cache_trace(const nlohmann::ordered_json& json) {
  KvTrace trace{.forwards = json.at("forwards").get<int64_t>()};
  for (const auto& layer : json.at("layers")) {
    trace.layers.push_back({.written = layer.at("written").get<int64_t>(),
                            .nodes = layer.at("nodes").get<int64_t>(),
                            .keys = layer.at("keys").get<std::vector<int64_t>>(),
                            .mass = layer.at("mass").get<std::vector<double>>()});
  }
  for (const auto& group : json.at("pages")) {
    trace.pages.push_back(parse_used_pages(group));
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

KvTiers parse_cache_tiers(const nlohmann::ordered_json& json) {
  KvTiers tiers;
  for (const auto& [name, bytes] : kTierBytes) {
    tiers.*bytes = json.value(name, int64_t{0});  // older runs have no host_bytes
  }
  for (const auto& [name, count] : kTierCounts) {
    tiers.*count = json.at(name).get<int64_t>();
  }
  tiers.wait_seconds = json.at("wait_seconds").get<double>();
  return tiers;
}

}  // namespace specdec
