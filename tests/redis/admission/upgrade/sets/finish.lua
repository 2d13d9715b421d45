local is_done, said = pcall(function()
  look()
  if time > UNTIL then return answer(LATE) end
  return decide()
end)
if failed then return failed end
if not is_done then error(said) end
return said
