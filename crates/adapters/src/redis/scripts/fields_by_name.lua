-- Prepended to scripts that read XINFO: turns a list of names and values into a table.
local function named(list)
  local fields = {}
  for i = 1, #list, 2 do
    fields[list[i]] = list[i + 1]
  end
  return fields
end

