#include "kv/page_table.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace specdec {

std::span<const PageTable::Page> PageTable::pages(int64_t row) const {
  SPECDEC_CHECK(row >= 0 && row < rows(), "pages of row {} of {}", row, rows());
  return rows_[static_cast<size_t>(row)];
}

int64_t PageTable::pages_needed(int64_t row, int64_t first, int64_t end) const {
  if (row >= rows()) {
    return end - first;
  }
  const auto& pages = rows_[static_cast<size_t>(row)];
  const auto count = static_cast<int64_t>(pages.size());
  int64_t needed = std::max<int64_t>(0, end - std::max(first, count));
  for (int64_t i = first; i < std::min(end, count); ++i) {
    const Page page = pages[static_cast<size_t>(i)];
    needed += page == kNone || references_[static_cast<size_t>(page)] > 1 ? 1 : 0;
  }
  return needed;
}

int64_t PageTable::pages_of(std::span<const Branch> branches) const {
  std::vector<int32_t> holders = this->holders();
  std::vector<int32_t> writers(references_.size());
  int64_t used = 0;
  for (const Branch& branch : branches) {
    const auto pages = branch.source < 0 ? std::span<const Page>() : this->pages(branch.source);
    SPECDEC_CHECK(branch.kept <= std::ssize(pages), "{} pages of the {} of row {}", branch.kept,
                  std::ssize(pages), branch.source);
    for (int64_t i = 0; i < branch.kept; ++i) {
      if (const Page page = pages[static_cast<size_t>(i)]; page != kNone) {
        ++holders[static_cast<size_t>(page)];
        writers[static_cast<size_t>(page)] += i >= branch.first && i < branch.end ? 1 : 0;
      }
    }
    used += std::max<int64_t>(0, branch.end - std::max(branch.first, branch.kept));
  }
  for (size_t page = 0; page < holders.size(); ++page) {
    if (holders[page] > 0) {
      used += 1 + std::min(writers[page], holders[page] - 1);
    }
  }
  return used;
}

PageTable::Use PageTable::use(std::span<const int64_t> lengths, int64_t page_size) const {
  SPECDEC_CHECK(std::ssize(lengths) == rows(), "use: {} lengths of {} rows", lengths.size(),
                rows());
  std::vector<int64_t> tokens(references_.size());
  for (size_t row = 0; row < rows_.size(); ++row) {
    int64_t left = lengths[row];
    for (const Page page : rows_[row]) {
      if (page != kNone) {
        auto& held = tokens[static_cast<size_t>(page)];
        held = std::max(held, std::min(left, page_size));
      }
      left = std::max<int64_t>(0, left - page_size);
    }
  }
  const std::vector<int32_t> holders = this->holders();
  Use use;
  for (size_t page = 0; page < references_.size(); ++page) {
    const bool is_used = tokens[page] > 0 || holders[page] > 0;
    use.used += is_used ? 1 : 0;
    use.shared += is_used && references_[page] > 1 ? 1 : 0;
    use.spare += !is_used && references_[page] > 0 ? 1 : 0;
    use.tokens += tokens[page];
    use.filled += tokens[page] > 0 ? 1 : 0;
  }
  return use;
}

void PageTable::add_rows(int64_t rows) {
  if (rows > this->rows()) {
    rows_.resize(static_cast<size_t>(rows));
  }
}

void PageTable::make_writable(int64_t row, int64_t first, int64_t end, std::vector<Copy>& copies) {
  SPECDEC_CHECK(row >= 0 && row < rows(), "pages of row {} of {}", row, rows());
  auto& pages = rows_[static_cast<size_t>(row)];
  const int64_t count = std::min(end, static_cast<int64_t>(pages.size()));
  for (int64_t i = first; i < count; ++i) {
    Page& page = pages[static_cast<size_t>(i)];
    if (page == kNone) {
      page = take();
    } else if (references_[static_cast<size_t>(page)] > 1) {
      const Copy copy{page, take()};
      copies.push_back(copy);
      release(copy.from);
      page = copy.to;
    }
  }
  while (static_cast<int64_t>(pages.size()) < end) {
    pages.push_back(std::ssize(pages) < first ? kNone : take());
  }
}

void PageTable::undo_copies(std::span<const Copy> copies) {
  for (const Copy& copy : copies) {
    for (auto& pages : rows_) {  // one of them owns the copy alone
      std::replace(pages.begin(), pages.end(), copy.to, copy.from);
    }
    refer({&copy.from, 1});
    release(copy.to);
  }
}

std::vector<PageTable::Page> PageTable::hold(int64_t row, int64_t count) {
  const auto pages = this->pages(row);
  SPECDEC_CHECK(count >= 0 && count <= std::ssize(pages), "{} pages of the {} of row {}", count,
                std::ssize(pages), row);
  std::vector<Page> held(pages.begin(), pages.begin() + count);
  refer(held);
  return held;
}

void PageTable::release(std::span<const Page> held) {
  for (const Page page : held) {
    release(page);
  }
}

void PageTable::attach(int64_t row, std::span<const Page> pages) {
  SPECDEC_CHECK(row >= 0 && row < rows(), "pages of row {} of {}", row, rows());
  refer(pages);
  trim(row, 0);
  rows_[static_cast<size_t>(row)].assign(pages.begin(), pages.end());
}

std::vector<int32_t> PageTable::holders() const {
  std::vector<int32_t> holders = references_;
  for (const auto& pages : rows_) {
    for (const Page page : pages) {
      if (page != kNone) {
        --holders[static_cast<size_t>(page)];
      }
    }
  }
  return holders;
}

int64_t PageTable::held_pages() const {
  const std::vector<int32_t> each = holders();
  return std::count_if(each.begin(), each.end(), [](int32_t holders) { return holders > 0; });
}

void PageTable::trim(int64_t row, int64_t count) {
  SPECDEC_CHECK(row >= 0 && row < rows(), "pages of row {} of {}", row, rows());
  auto& pages = rows_[static_cast<size_t>(row)];
  while (static_cast<int64_t>(pages.size()) > count) {
    release(pages.back());
    pages.pop_back();
  }
}

void PageTable::give_back_first(int64_t row, int64_t count) {
  SPECDEC_CHECK(count >= 0 && count <= std::ssize(pages(row)), "{} pages of the {} of row {}",
                count, std::ssize(pages(row)), row);
  auto& pages = rows_[static_cast<size_t>(row)];
  for (int64_t i = count - 1; i >= 0 && pages[static_cast<size_t>(i)] != kNone; --i) {
    release(std::exchange(pages[static_cast<size_t>(i)], kNone));
  }
}

void PageTable::refer(std::span<const Page> pages) {
  for (const Page page : pages) {
    if (page != kNone) {
      ++references_[static_cast<size_t>(page)];
    }
  }
}

PageTable::Page PageTable::take() {
  if (free_.empty()) {
    references_.push_back(1);
    return static_cast<Page>(references_.size() - 1);
  }
  const Page page = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(page)] = 1;
  return page;
}

void PageTable::release(Page page) {
  if (page == kNone) {
    return;
  }
  int32_t& references = references_[static_cast<size_t>(page)];
  if (--references == 0) {
    free_.push_back(page);
  }
}

}  // namespace specdec
