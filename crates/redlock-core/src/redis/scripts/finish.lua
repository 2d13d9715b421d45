local is_done, said = pcall(function()
  look()
  return decide()
end)
if failed then return failed end
if not is_done then error(said) end
return said
