#include "core/formats/pickle/pickle.h"

#include <fmt/format.h>

#include <cstring>
#include <deque>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>

#include "core/error.h"
#include "core/formats/pickle/pickle_object.h"

namespace specdec {
namespace pickle {
namespace {

/// The machine that a pickle is a program for: protocols 0 to 5, as far as torch.save uses them.
class Machine {
 public:
  Machine(std::span<const std::byte> code, const std::string& where)
      : code_(reinterpret_cast<const char*>(code.data()), code.size()), where_(where) {}

  const Value& run() {
    while (true) {
      const char operation = take(1).front();
      if (operation == '.') {
        return *pop();
      }
      if (!constant(operation) && !memory(operation) && !collection(operation) &&
          !call(operation)) {
        fail(fmt::format("operation 0x{:02x} is not one that torch.save writes",
                         static_cast<unsigned char>(operation)));
      }
    }
  }

  [[noreturn]] void fail(const std::string& problem) const { pickle::fail(where_, problem); }

 private:
  std::string_view take(size_t size) {
    if (code_.size() - at_ < size) {
      fail("it ends too early; copy or download the file again");
    }
    at_ += size;
    return code_.substr(at_ - size, size);
  }

  std::string_view line() {
    const size_t end = code_.find('\n', at_);
    if (end == std::string_view::npos) {
      fail("it ends too early; copy or download the file again");
    }
    const std::string_view text = code_.substr(at_, end - at_);
    at_ = end + 1;
    return text;
  }

  template <class Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof(Number)).data(), sizeof(Number));
    return value;
  }

  template <class Kind>
  void push(Kind value) {
    stack_.push_back(&values_.emplace_back(Value{std::move(value)}));
  }

  Value* pop() {
    if (stack_.empty()) {
      fail("it takes more than there is");
    }
    Value* top = stack_.back();
    stack_.pop_back();
    return top;
  }

  Value* top() {
    if (stack_.empty()) {
      fail("it takes more than there is");
    }
    return stack_.back();
  }

  /// What lies above the newest mark, which goes too.
  Values pop_to_mark() {
    size_t mark = stack_.size();
    while (mark > 0 && !std::holds_alternative<Mark>(stack_[mark - 1]->is)) {
      --mark;
    }
    if (mark == 0) {
      fail("a mark is missing");
    }
    Values values(stack_.begin() + static_cast<std::ptrdiff_t>(mark), stack_.end());
    stack_.resize(mark - 1);
    return values;
  }

  Values pop_values(size_t count) {
    Values values(count);
    for (size_t i = count; i-- > 0;) {
      values[i] = pop();
    }
    return values;
  }

  /// Little-endian, signed, of at most 8 bytes.
  int64_t long_integer(size_t bytes) {
    const std::string_view text = take(bytes);
    if (bytes > sizeof(int64_t)) {
      fail("an integer has more than 64 bits");
    }
    const bool negative = !text.empty() && (static_cast<unsigned char>(text.back()) & 0x80U) != 0;
    int64_t value = negative ? -1 : 0;
    std::memcpy(&value, text.data(), bytes);
    return value;
  }

  double big_endian_double() {
    const std::string_view text = take(sizeof(double));
    const std::string reversed(text.rbegin(), text.rend());
    double value = 0.0;
    std::memcpy(&value, reversed.data(), sizeof(value));
    return value;
  }

  /// The global that a module's name and the name of a class in it make.
  Global global_of(const Values& names) const {
    const auto* module = std::get_if<std::string>(&names[0]->is);
    const auto* name = std::get_if<std::string>(&names[1]->is);
    if (module == nullptr || name == nullptr) {
      fail("a class has no name");
    }
    return {*module + " " + *name};
  }

  bool constant(char operation) {
    switch (operation) {
      case 'N':
        push(Nothing{});
        return true;
      case '\x88':
        push(true);
        return true;
      case '\x89':
        push(false);
        return true;
      case 'J':
        push(int64_t{number<int32_t>()});
        return true;
      case 'K':
        push(int64_t{number<uint8_t>()});
        return true;
      case 'M':
        push(int64_t{number<uint16_t>()});
        return true;
      case '\x8a':
        push(long_integer(number<uint8_t>()));
        return true;
      case 'G':
        push(big_endian_double());
        return true;
      case 'X':
        push(std::string(take(number<uint32_t>())));
        return true;
      case '\x8c':
        push(std::string(take(number<uint8_t>())));
        return true;
      case '\x93':
        push(global_of(pop_values(2)));
        return true;
      case 'c': {
        const std::string module(line());
        push(Global{module + " " + std::string(line())});
        return true;
      }
      default:
        return false;
    }
  }

  /// The memory of values by number, and what moves nothing.
  bool memory(char operation) {
    switch (operation) {
      case '\x80':
        take(1);
        return true;  // the protocol
      case '\x95':
        take(8);
        return true;  // a frame of so many bytes
      case 'q':
        memo_[number<uint8_t>()] = top();
        return true;
      case 'r':
        memo_[number<uint32_t>()] = top();
        return true;
      case '\x94':
        memo_[static_cast<uint32_t>(memo_.size())] = top();
        return true;
      case 'h':
        recall(number<uint8_t>());
        return true;
      case 'j':
        recall(number<uint32_t>());
        return true;
      case '0':
        pop();
        return true;
      default:
        return false;
    }
  }

  void recall(uint32_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) {
      fail(fmt::format("value {} was never made", index));
    }
    stack_.push_back(found->second);
  }

  bool collection(char operation) {
    switch (operation) {
      case '(':
        push(Mark{});
        return true;
      case ')':
      case ']':
        push(Sequence{});
        return true;
      case '}':
        push(Dictionary{});
        return true;
      case '\x85':
        push(Sequence{pop_values(1)});
        return true;
      case '\x86':
        push(Sequence{pop_values(2)});
        return true;
      case '\x87':
        push(Sequence{pop_values(3)});
        return true;
      case 't':
        push(Sequence{pop_to_mark()});
        return true;
      case 'a':
        append({pop()});
        return true;
      case 'e':
        append(pop_to_mark());
        return true;
      case 's':
        set_items(pop_values(2));
        return true;
      case 'u':
        set_items(pop_to_mark());
        return true;
      default:
        return false;
    }
  }

  void append(const Values& values) {
    auto* list = std::get_if<Sequence>(&top()->is);
    if (list == nullptr) {
      fail("it appends to what is no list");
    }
    list->items.insert(list->items.end(), values.begin(), values.end());
  }

  void set_items(const Values& values) {
    auto* dictionary = std::get_if<Dictionary>(&top()->is);
    if (dictionary == nullptr || values.size() % 2 != 0) {
      fail("it sets items of what is no dictionary");
    }
    for (size_t i = 0; i < values.size(); i += 2) {
      dictionary->items.emplace_back(values[i], values[i + 1]);
    }
  }

  bool call(char operation) {
    switch (operation) {
      case 'Q':
        push(storage_of(*pop(), where_));
        return true;
      case 'b': {  // attributes, such as a state dict's _metadata
        const Value* attributes = pop();
        auto* object = std::get_if<Object>(&top()->is);
        if (object != nullptr && !object->is_tensor) {
          object->state = attributes;
        }
        return true;
      }
      case 'R':
      case '\x81': {
        const Value* arguments = pop();
        stack_.push_back(&values_.emplace_back(made_by(*pop(), *arguments, where_)));
        return true;
      }
      default:
        return false;
    }
  }

  std::string_view code_;
  const std::string& where_;
  size_t at_ = 0;
  std::deque<Value> values_;
  std::vector<Value*> stack_;
  std::unordered_map<uint32_t, Value*> memo_;
};

}  // namespace
}  // namespace pickle

/// How to save what a training checkpoint holds beside other things.
static std::string saving_advice(const pickle::Dictionary& dictionary) {
  for (const auto& [key, value] : dictionary.items) {
    const auto* name = std::get_if<std::string>(&key->is);
    if (name != nullptr && std::holds_alternative<pickle::Dictionary>(value->is)) {
      return fmt::format("torch.save(x['{}'], FILE)", *name);
    }
  }
  return "torch.save(model.state_dict(), FILE)";
}

PickledTensors read_pickled_tensors(std::span<const std::byte> code, const std::string& where) {
  pickle::Machine machine(code, where);
  const pickle::Value& result = machine.run();
  const auto* dictionary = std::get_if<pickle::Dictionary>(&result.is);
  if (dictionary == nullptr) {
    throw WeightsError(
        fmt::format("{}: it holds {}, not a dictionary of tensors: torch.save(model.state_dict(), "
                    "FILE) writes one.",
                    where, kind_of(result)));
  }
  PickledTensors found;
  std::set<std::string> names;
  const auto add = [&](const PickledTensor& tensor, const std::string& name) {
    if (!names.insert(name).second) {
      machine.fail("a tensor's name is there twice");
    }
    found.tensors.push_back(tensor);
    found.tensors.back().layout.name = name;
  };
  pickle::Flattening into{add, where, code.size() * pickle::kMostFlattened};
  for (const auto& [key, value] : dictionary->items) {
    const auto* name = std::get_if<std::string>(&key->is);
    const auto* tensor = std::get_if<PickledTensor>(&value->is);
    if (name == nullptr) {
      machine.fail("a tensor's name is no string");
    }
    const auto* object = std::get_if<pickle::Object>(&value->is);
    if (object != nullptr && object->is_tensor) {
      found.metadata[*name] = pickle::flatten(*name, *object, into);
      continue;
    }
    if (tensor == nullptr) {
      throw WeightsError(
          fmt::format("{}: '{}' is {}, not a tensor. Save the tensors alone, such as {}.", where,
                      *name, kind_of(*value), saving_advice(*dictionary)));
    }
    add(*tensor, *name);
  }
  return found;
}

}  // namespace specdec
