"""Counts phrases that CONTRIBUTING.md asks writers to avoid, and compares them with a budget.

It reads the documents, the messages of the command, and the comments of the crates. Code is
ignored. A budget is a number of hits per 10,000 words. It is about twice the rate of well-written
crates, because a few hits are ordinary English. It fails while a phrase exceeds its budget.
"""

import argparse
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MESSAGES = "crates/redlock-cli/tests/messages.snap"
PER = 10_000

VERB = r"(?:is|are|was|were|has|have|had|does|did|can|cannot|may|must|[a-z]{3,}s)"
STATE = (
    r"(?:[a-z-]{3,}(?:ed|en|own|ost|eld|eft)|new|down|away|silent|free|over|due|slow|late|wrong|right"
    r"|missing|young|old|dead|alive|set|run)"
)
PARTICLE = r"(?:waited for|asked for|looked at|relied on|counted on|kept back|given back|given up|put back|handed on)"
THING = r"(?:lock|connection|cause|operation|commit|extension|release|attempt|master|core|turn|key|name|request|process|host|entry|command)"
NOUNLESS = r"(?:is|are|was|were|has|have|had|comes?|came|waits?|holds?|held|lost|goes|made|follows?|remains?|ends|needs?|gets?|asks?|knows?|works?|does|cannot|can|may|must)"
# After these words, a clause with *what* is an indirect question.
INDIRECT = "".join(
    f"(?<!{word} )" for word in "know knows known see sees show shows explain explains check checks report reports learn learns decide decides list lists of about and or to on by whether".split()
)
NUMBERED = r"(?:instructions?|allocations?|calls?|commands?|requests?|trips?|steps?|threads?|once|twice|times?|tokens?|warnings?|costs?|ms|us|bytes?|\d+)"

# Name, budget, advice, expression. `{}` in a text never matches, because placeholders are blanked.
TABLE = [
    ("ask", 2.2, "query a master, request a lock, prompt an operator", r"\b[Aa]sk(?:s|ed|ing)?\b"),
    ("semicolon", 3.6, "write two sentences", r"; (?!see |or |and |otherwise )(?:it|they|the|an?|this|that|these|those|one|no|nothing|nobody|all|others?|each|where|if|when|until|[a-z]+s)\b"),
    ("where", 6.6, "if for a condition, when for a time", r"(?:(?<=[.:;] )|^|, |\b(?:only|even|but|also|except) )[Ww]here (?!to\b)\w+"),
    ("waited-for", 0.7, "make the actor explicit", r"\b(?:is|are|was|were|be|been|being)(?: not| never| only)? " + PARTICLE + r"\b"),
    ("one-that", 1.0, "repeat the noun", r"(?<![Tt]he )\b(?:[Oo]nes?|[Tt]hose) (?:that|which|who) |\b(?:is|are|as|and|or|not|with|by|to|from) (?:that|those) of\b"),
    ("that-is", 2.2, "put the adjective before the noun", r"(?<!\bone )(?<!\bones )(?<!those )(?<!when )(?<!if )(?<!so )(?<!than )(?<!as )\b(?:that|which|who) (?:is|are|was|were)(?: not| never)? " + STATE + r"(?=[.,;:)]|$| " + VERB + r"\b)"),
    ("what", 1.2, "name the thing", INDIRECT + r"\b[Ww]hat " + NOUNLESS + r"\b(?![^.?!]{0,80}\?)|(?:(?<=[.:;] )|^)(?:What|Who|Whoever) " + VERB + r" [^.?!]{3,}?[.;:]"),
    ("behind", 2.7, "after, except in queues and for proxies", r"(?<!left )(?<!leaves )\b[Bb]ehind (?!a proxy|proxies|the proxy|NAT|others)"),
    ("archaic", 0.5, "use today's word", r"\b(?:all the same|as ever|as a rule|anew|seldom|amid|in good order|at this moment|meanwhile)\b"),
    ("any-more", 0.5, "no longer, forever", r"\bany more(?=[.,;:)]|$| (?:and|or|because|when|if|as|after|than it)\b)|\bfor ever\b"),
    ("at-once", 1.1, "immediately, at the same time", r"\bat once\b"),
    ("of-its-own", 0.5, "its own, separate", r"\bof (?:its|their|our|your|his) own\b"),
    ("nobody", 0.5, "say which: no client, no process", r"\b(?:[Nn]obody|[Ss]omebody|[Ee]verybody)\b"),
    ("go-on", 0.5, "continue, keep running", r"\b(?:go|goes|going|went|gone) on\b(?! (?:the|a) )"),
    ("count", 0.5, "vote, apply, be valid", r"\b(?:not|never|nothing|answers|votes|copy|copies|it|they|that) counts?\b(?! (?:as|the|them|it|how|of|on)\b)"),
    ("stand-lie", 0.5, "be, precede, follow, wait", r"\b(?:stands?|stood|lies|lay) (?:there|in|at|on|behind|before|by|beside|where|still|ahead)\b(?! the (?:way|middle)\b)"),
    ("is-to", 0.6, "must, should", r"\b(?:is|are|was|were) to (?:be \w+|run|vote|exclude|extend|begin|happen|wait|take|report|stop|have|hold|release|lock|write|end|keep)\b"),
    ("person", 0.5, "you, an operator", r"\b(?:[Aa] person|person's|people)\b"),
    ("too", 0.5, "also, as well", r", too\b(?! (?:few|many|large|small|late|short|long|much|soon|close|old|slow|big|high|low)\b)"),
    ("is-no", 0.5, "is not a", r"(?<![Tt]here )\b(?:is|are|was|were) no (?!longer\b|more\b|less\b|earlier\b|later\b|larger\b|smaller\b|way\b|need\b|quorum\b)[a-z]+"),
    ("say", 0.7, "show, print, report, log", r"\b(?:is|are|was|were|be) (?:said|told)\b|\b(?:it|which|that|command|redlock|doctor|init|status|line|note|errors?|answers?|servers?|masters?|message|text|reply|help) (?:says?|tells?)\b"),
    ("coinage", 0.5, "use words that a search finds", r"\b(?:[Bb]rand-new|[Tt]hrow-away|[Tt]wins?|mark of the future|to play with)\b"),
    ("give", 0.7, "use, pass, set, run", r"(?:^|[:;,] |\bor |\band )(?:[Gg]ive|[Tt]ype|[Nn]ame|[Tt]ake) (?:--?\w|an? |the |it |\d|every|each|independent|such|`)"),
    ("beside", 0.5, "next to, in addition to", r"\b[Bb]eside\b"),
    ("alone", 0.5, "only", r"\b(?!leave |left |let |run |runs |works |used )[a-z]+ alone\b"),
    ("cure", 0.5, "fix", r"\b(?:in)?cur(?:e|es|ed|able|ing)\b"),
    ("another", 0.5, "another client, another host", r"\b[Aa]nother (?:holds?|has|had|may|can|could|got|gets|is|was|must|begins?|takes?|did|does|waits|will|might)\b"),
    ("end-exit", 0.5, "processes exit or are killed", r"\b[Ee]nd(?:s|ed)? with (?:exit |code |\d|SIG)|\b(?:process|processes|command|group|redlock|child|program|watchdog) (?:has|have|had) ended\b"),
    ("then", 0.5, "put the condition first", r"(?<!until )(?<!since )(?<!by )(?<!and )(?<!even )(?<=[a-z] )then(?=[.;:]|$)"),
    ("per", 0.5, "per", r"\b" + NUMBERED + r" an? " + THING + r"\b"),
    ("before", 0.5, "previous, earlier", r"\b(?:all|lock|one|lease|holder|version|those|client|connection|attempt|revision|caller) before\b(?= ?[.,;:)|]|$)"),
    ("may-not", 3.4, "must not, cannot, might not", r"\bmay not\b"),
]
OPENER = ("doc-opener", 6.7, "start with a verb: Returns, Sets, Waits", r"^(?:As \[|(?:Whether|How|Why|What|Where|When|Who|Until|For|The|An?|Each|No|It|These|This|Those|One|All|Not|None|Everything|Nothing|Some|Another|In|With|Of|By|At|On|From|If|Is|Has|Without|Further|Several|More)\b)")

# A text without one of these strings has no hit. Finding them is much faster than matching.
NEEDLES = {
    "ask": ("sk",),
    "where": ("here ",),
    "one-that": (" that ", " which ", " who ", " those "),
    "that-is": ("that ", "which ", "who "),
    "what": ("hat ", "Who"),
    "behind": ("ehind",),
    "any-more": (" more", " ever"),
    "at-once": ("at once",),
    "of-its-own": (" own",),
    "nobody": ("body",),
    "go-on": (" on",),
    "count": ("count",),
    "is-to": (" to ",),
    "person": ("erson", "eople"),
    "too": (", too",),
    "is-no": (" no ",),
    "give": ("ive ", "ype ", "ame ", "ake "),
    "beside": ("eside",),
    "alone": (" alone",),
    "cure": ("cur",),
    "another": ("nother ",),
    "then": (" then",),
    "per": (" a ", " an "),
    "before": (" before",),
    "may-not": ("may not",),
}

Text = collections.namedtuple("Text", "file line kind words plain")


def blank(text):
    """Replaces code, link targets, addresses and placeholders, which are not prose."""
    hide = lambda hit: "_" * len(hit.group())
    for expression in (r"`[^`]*`", r"\]\([^)\s]*\)", r"https?://\S+", r"\{[^{}]*\}"):
        text = re.sub(expression, hide, text)
    return text


def text_of(file, line, kind, text):
    plain = blank(text)
    return Text(file, line, kind, len(re.findall(r"\S*[A-Za-z0-9]\S*", plain)), plain)


def paragraphs(file, kind, lines):
    """Yields the paragraphs, list items, headings and table cells of Markdown."""
    part, start, is_code = [], 0, False
    for number, line in lines + [(0, "")]:
        line = line.strip().removeprefix("> ")
        is_fence = line.startswith("```")
        is_code ^= is_fence
        item = re.match(r"(?:[-*+]|\d+\.) +", line)
        is_row, is_heading = line.startswith("|"), line.startswith("#")
        if part and (not line or is_fence or is_code or item or is_row or is_heading):
            yield text_of(file, start, kind, " ".join(part))
            part = []
        if is_code or is_fence or not line:
            continue
        if is_row:
            cells = (cell.strip() for cell in line.replace("\\|", "/").split("|"))
            yield from (text_of(file, number, kind, cell) for cell in cells if re.search(r"\w", cell))
        elif is_heading:
            yield text_of(file, number, kind, line.lstrip("# "))
        else:
            start = start if part else number
            part.append(line[item.end():] if item else line)


def comments(file, lines):
    """Yields the comments of a Rust file that have their own lines."""
    run, mark = [], None
    for number, line in enumerate(lines + [""], 1):
        found = re.match(r"\s*(//[/!]?)(?!/) ?(.*)", line)
        now = found and found.group(1)
        if run and now != mark:
            texts = list(paragraphs(file, "comment", run))
            if texts and mark == "///" and opens_function(lines[number - 1:number + 4]):
                texts[0] = texts[0]._replace(kind="function")
            yield from texts
            run = []
        mark = now
        if found:
            run.append((number, found.group(2)))


def opens_function(lines):
    """Returns whether a public function follows, after its attributes."""
    code = (line.strip() for line in lines if not line.strip().startswith(("#[", ")]")))
    return bool(re.match(r"pub (?:const |async |unsafe )*fn ", next(code, "")))


def messages(file, lines):
    """Yields each message once. Usage lines and options are not prose."""
    seen = set()
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if number > 1 and text and text not in seen and not re.match(r"# |Usage:|-|redlock |if redis", text):
            seen.add(text)
            yield text_of(file, number, "message", text)


def corpus():
    for pattern in ("*.md", "docs/*.md", "crates/*/README.md"):
        for file, lines in read(pattern):
            yield from paragraphs(file, "document", list(enumerate(lines, 1)))
    for file, lines in read(MESSAGES):
        yield from messages(file, lines)
    for file, lines in read("crates/*/src/**/*.rs"):
        yield from comments(file, lines)


def read(pattern):
    for path in sorted(ROOT.glob(pattern)):
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8").split("\n")


def hits(name, expression, texts):
    wanted = {"doc-opener": ("function",), "semicolon": ("document", "comment", "function")}.get(name)
    needles = NEEDLES.get(name)
    for text in texts:
        if needles and not any(needle in text.plain for needle in needles):
            continue
        if not wanted or text.kind in wanted:
            yield from ((text, hit) for hit in expression.finditer(text.plain))


def summary(patterns, texts):
    words = sum(text.words for text in texts)
    above = 0
    print(f"{'pattern':<12}{'hits':>6}{'per 10,000':>12}{'budget':>8}  write")
    for name, budget, advice, expression in patterns:
        found = sum(1 for _ in hits(name, expression, texts))
        rate = found * PER / max(words, 1)
        above += rate > budget
        print(f"{name:<12}{found:>6}{rate:>12.1f}{budget:>8.1f}{'!' if rate > budget else ' '} {advice}")
    print(f"{words} words; {above} of {len(patterns)} patterns exceed their budget (!)")
    return 1 if above else 0


def folders(patterns, texts):
    found = collections.Counter()
    words = collections.Counter()
    for text in texts:
        words[folder(text.file)] += text.words
    for name, _, _, expression in patterns:
        found.update(folder(text.file) for text, _ in hits(name, expression, texts))
    for name, count in sorted(words.items()):
        print(f"{found[name]:>6} hits in {count:>6} words  {name}")
    return 0


def folder(file):
    parts = file.split("/")
    return "/".join(parts[:3]) if parts[0] == "crates" else parts[0] if len(parts) > 1 else "."


def show(patterns, texts, wanted):
    for name, _, _, expression in patterns:
        if name == wanted:
            for text, hit in hits(name, expression, texts):
                begin, end = hit.span()
                near = f"{text.plain[max(0, begin - 50):begin]}[{hit.group()}]{text.plain[end:end + 50]}"
                print(f"{text.file}:{text.line}: {near}")
            return 0
    print(f"prose-lint: no pattern {wanted}; known: {', '.join(row[0] for row in patterns)}", file=sys.stderr)
    return 2


def main():
    parser = argparse.ArgumentParser(prog="prose-lint", description=__doc__)
    parser.add_argument("--show", metavar="PATTERN", help="print the hits of one pattern")
    parser.add_argument("--folders", action="store_true", help="print the hits per folder")
    options = parser.parse_args()
    patterns = [(*row[:3], re.compile(row[3])) for row in [OPENER, *TABLE]]
    texts = list(corpus())
    if options.show:
        return show(patterns, texts, options.show)
    return folders(patterns, texts) if options.folders else summary(patterns, texts)


if __name__ == "__main__":
    sys.exit(main())
