-- Before scripts that ask for information: what Redis answers as names and values in turn, by name.
local function named(list)
  local fields = {}
  for i = 1, #list, 2 do
    fields[list[i]] = list[i + 1]
  end
  return fields
end

