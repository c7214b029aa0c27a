#include "grammar/json/value_plan.h"

namespace specdec {

ObjectPlan::Named& ObjectPlan::require(NameId name) {
  Named& result = named[name];
  required += result.required ? 0 : 1;
  result.required = true;
  return result;
}

}  // namespace specdec
