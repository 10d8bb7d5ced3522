# The prose of a UTF-8 text in paragraphs (the Jargon File: `:word: /pronunciation/, n.` and what it
# means), as ASCII with few distinct characters: first each word and its meaning, without markup;
# tables, lists of contents and paragraphs with signs that are rare in prose are left out.
# LC_ALL=C awk -f prose.awk TEXT: bytes, in every awk.
BEGIN { RS = "" }

{
  gsub(/“|”/, "\"")
  gsub(/‘|’/, "'")
  gsub(/ *— */, " - ")
  gsub(/ +\n/, "\n")
  gsub(/–|−/, "-")
  gsub(/…/, "...")
  gsub(/ /, " ")  # a space that does not break
  gsub(/[{}]/, "")  # around words that are explained elsewhere
  gsub(/(^|\n) +/, "\n")
  sub(/^\n/, "")
}

# A word that is explained: it begins the next paragraph.
/^:[^:]+:/ {
  split($0, part, ":")
  word = part[2] ": "
  next
}

{
  sub(/^\[[^]]*\] */, "")  # where and when it is said
  text = word $0
  word = ""
}

# Sentences: at least eight words of small letters, and no sign but these.
gsub(/[a-z]+/, "&", text) >= 8 && text ~ /[.!?:"')]$/ && text !~ /[^A-Za-z0-9 \n.,;:!?'"()\/-]/ {
  print text "\n"
}
