#pragma once
#include <string_view>

#include "core/jinja/value.h"

namespace specdec {

/// The value of `value | name(arguments)`. All functions here throw Error for what is not
/// supported, by name, and for what jinja2 refuses.
JinjaValue apply_filter(std::string_view name, const JinjaValue& value,
                        const JinjaArguments& arguments);
/// Whether `value is name(arguments)`.
bool apply_test(std::string_view name, const JinjaValue& value, const JinjaArguments& arguments);

/// The value of `value.name`: an attribute, a method, else an item.
JinjaValue attribute_of(const JinjaValue& value, std::string_view name, JinjaBudget& budget);
/// The value of `value[item]`.
JinjaValue item_of(const JinjaValue& value, const JinjaValue& item, JinjaBudget& budget);
/// The value of `value[begin:end:step]`; none stands for what is left out.
JinjaValue slice_of(const JinjaValue& value, const JinjaValue& begin, const JinjaValue& end,
                    const JinjaValue& step, JinjaBudget& budget);

/// A method of a text; throws for one that str does not have or that is not supported.
JinjaValue call_text_method(const JinjaText& text, std::string_view name,
                            const JinjaArguments& arguments);
/// True where str has it.
bool is_text_method(std::string_view name);

/// json.dumps(value, ensure_ascii=False).
JinjaText json_of(const JinjaValue& value, JinjaBudget& budget);

}  // namespace specdec
