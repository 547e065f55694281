#!/usr/bin/env python3
"""Writes the files in wordpiece/ beside it: texts, and the tokens that the `tokenizers` package makes of them.

    python3 tests/golden/make_wordpiece.py MODEL

MODEL is the folder of the published all-MiniLM-L6-v2. Needs the packages tokenizers and xxhash, and perl, which knows
what Unicode 8 has: the categories of `tokenizers` are of that version, so every text is of its code points.

lines.txt        2,000 texts, a line each; the last ones are not UTF-8
vocab.txt        a vocabulary for them: characters, and pieces of their words
ids.txt          the tokens of each line, with [CLS] and [SEP], where MODEL's options hold: lower case, no accents
hashes.txt       XXH3 of such lines: whole (32 digits, "all"), and of each line (4 digits). First with this vocabulary and
                 the options of OTHERS, then with that of MODEL
code_points.txt  runs of code points that Unicode 8 has, first and last, and 8 digits of XXH3 for each of EXHAUSTIVE: of the
                 lines of tokens of "a" + code point + "b", where each code point in the file is a token, and so is it
                 behind ##; [PAD] [UNK] [CLS] [SEP] come first
tests/apps/wordpiece.cpp reads them.
"""
import pathlib
import random
import subprocess
import sys
import unicodedata

import xxhash
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

here = pathlib.Path(__file__).parent / "wordpiece"
R = random.Random(20240229)
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# (lower case, strip accents, split CJK)
DEFAULT, OTHERS = (True, True, True), [(False, False, True), (True, False, True), (False, True, False)]
EXHAUSTIVE = [(True, True, True), (False, False, False), (True, False, True)]

SENTENCES = """The quick brown foxes didn't jump; they'd rather sleep (mostly) on a well-worn rug.
Unbelievable! Who would have thought that tokenization is straightforward?
Die Größe der Schlüssel überrascht: Übermäßig lange Wörter wie Rindfleischetikettierungsüberwachungsaufgabe.
L'été dernier, à Besançon, nous avons mangé des crêpes ; où étiez-vous, Zoë ?
¿Dónde está el niño? ¡Mañana será otro día, corazón!
A avó não põe açúcar no café da manhã.
Zażółć gęślą jaźń, a potem idź na spacer.
Příliš žluťoučký kůň úpěl ďábelské ódy.
Az árvíztűrő tükörfúrógép működik, ugye?
İstanbul'da ılık bir gün; IŞIK ve ışık aynı mı?
Một hôm trời nắng, chúng tôi đi uống cà phê ở Hà Nội.
Hyvää yötä, äiti! Löysimme järveltä kolme hyönteistä.
Þetta er ævintýri um eldgosið á Íslandi.
Ţara noastră are munţi înalţi și ape adânci.
Все счастливые утра похожи друг на друга, ёлка стоит в углу.
Їжак п'є молоко, а ґава дивиться з дерева.
Чичко, защо не дойде вчера вечерта?
Η γρήγορη αλεπού πηδάει· ποιος το είδε; ΟΔΥΣΣΕΥΣ, Ὀδυσσεύς, ἄνδρα μοι ἔννεπε.
הילד הלך לבית הספר, אבל הַשַּׁעַר היה סגור.
ذهب الولدُ إلى المدرسة، لكنّ البابَ كان مغلقًا ٣ مرات.
می‌خواهم کتاب‌های تازه بخرم؛ کجا بروم؟
बच्चे पाठशाला जाते हैं। क्या आप हिन्दी बोलते हैं?
আমার সোনার দিন, কাল বৃষ্টি হবে।
தமிழ் மொழி மிகவும் பழமையானது, இல்லையா?
తెలుగు వాళ్ళు ఎక్కడ ఉన్నారు?
മലയാളം എഴുതാൻ പഠിക്കുന്നു.
วันนี้อากาศดีมาก เราไปเดินเล่นกันไหม
ສະບາຍດີ ຂ້ອຍຮຽນພາສາລາວ
ကျွန်တော် မြန်မာစကား နည်းနည်း ပြောတတ်တယ်။
ភាសាខ្មែរពិរោះណាស់
བོད་ཀྱི་སྐད་ཡིག་ནི་རྙིང་པ་ཡིན།
დღეს კარგი ამინდია, წავიდეთ ზღვაზე.
Այսօր եղանակը լավ է, գնանք զբոսնելու։
ዛሬ አየሩ ጥሩ ነው፤ እንሂድ።
今日は天気がいいから、散歩に行きましょう。カメラをｶﾒﾗと書く。
오늘은 날씨가 좋아서 산책을 갑니다. 각각의 글자.
今天天气很好,我们去公园散步吧!價錢是多少?
Монгол хэл ᠮᠣᠩᠭᠣᠯ ᠬᠡᠯᠡ сайхан.
ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ and ⲙⲛⲧⲣⲙⲛⲕⲏⲙⲉ, ᚱᚢᚾᛖᛋ, 𐌲𐌿𐍄𐌹𐍃𐌺, 𝔘𝔫𝔦𝔠𝔬𝔡𝔢, Ⅻ, ①②③, ½, ﬁne, Å, K.
for (int i = 0; i < n; ++i) x[i] += alpha*y[i]; // O(n), see https://example.org/a_b?c=d&e=%20
$\\alpha_{i} \\le 3.14\\cdot10^{-5}$ ≤ ≠ ≮ ∞ ∑ √ → ⇔ ± × ÷ € £ ¥ § ° ™ ‰ … – — “quotes” ‘single’ «guillemets» „unten“
e-mail: someone@example.com, tel. +49 (0)30 1234567, 12:34:56, 1,000,000.00, #hashtag, @user, ~/file.txt""".split("\n")


def unicode_8():
    """Pairs of the first and the last code point of each run, cut at multiples of 1024; of the planes for private use, the
    first ones only."""
    script = ('for $c (0 .. 0xF03FF) { next if $c >= 0xD800 && $c < 0xE000; '
              'print "$c\\n" if chr($c) =~ /\\p{Present_In: 8.0}/ }')
    runs = []
    for c in map(int, subprocess.run(["perl", "-e", script], check=True, capture_output=True, text=True).stdout.split()):
        if runs and runs[-1][1] == c - 1 and c % 1024:
            runs[-1][1] = c
        else:
            runs.append([c, c])
    return runs


RUNS = unicode_8()
CODE_POINTS = [c for first, last in RUNS for c in range(first, last + 1)]


def tokenizer(vocabulary, options):
    lower, strip, split = options
    made = Tokenizer(models.WordPiece({token: i for i, token in enumerate(vocabulary)}, unk_token="[UNK]"))
    made.add_special_tokens([token for token in SPECIAL if token in vocabulary])
    made.normalizer = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=split, strip_accents=strip,
                                                 lowercase=lower)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def words(text, options):
    """What the words of a text are, before they become pieces."""
    made = tokenizer(SPECIAL, options)
    return [word for word, _ in made.pre_tokenizer.pre_tokenize_str(made.normalizer.normalize_str(text))]


def ids_of(vocabulary, options, texts):
    """A line of tokens for each text."""
    cls, sep = vocabulary.index("[CLS]"), vocabulary.index("[SEP]")
    encoded = tokenizer(vocabulary, options).encode_batch(texts)
    return [" ".join(map(str, [cls, *one.ids, sep])) + "\n" for one in encoded]


def xxh(text, digits=32):
    return xxhash.xxh3_128_hexdigest(text.encode())[:digits]


# ---- texts

def pools():
    """Code points to choose from: few of each kind, so that the vocabulary can have most of them."""
    by = {}
    for c in CODE_POINTS:
        category = unicodedata.category(chr(c))
        by.setdefault(category, []).append(c)
    few = {category: R.sample(of, min(len(of), 150 if category in ("Mn", "Lo", "So") else 70)) for category, of in by.items()}
    few["marks"] = [c for c in by["Mc"] if unicodedata.combining(chr(c))] + R.sample(by["Mn"], 60) + R.sample(by["Mc"], 20)
    few["decomposed"] = R.sample([c for c in CODE_POINTS if unicodedata.decomposition(chr(c))[:1] not in ("", "<")], 120)
    few["cased"] = R.sample([c for c in CODE_POINTS if chr(c).lower() != chr(c)], 120) + [0x130]
    few["right"] = [c for c in range(0x5B0, 0x6FF) if c in set(CODE_POINTS)]
    few["cjk"] = [R.choice(CODE_POINTS_CJK) for _ in range(90)]
    few["edges"] = [0x3400, 0x4DBF, 0x4E00, 0x9FD5, 0xF900, 0xFAD9, 0x20000, 0x2A6D6, 0x2A700, 0x2B81D, 0x2B820, 0x2B91F, 0x2B920,
                    0x2CEA1, 0x2F800, 0x2FA1D]  # of the blocks of CJK ideographs
    few["odd"] = [0, 9, 0xB, 0xC, 0xD, 0x1C, 0x1F, 0x7F, 0x85, 0xA0, 0xAD, 0x1680, 0x166D, 0x1734, 0x180E, 0x1885, 0x1886, 0x1FEF,
                  0x2000, 0x200B, 0x200D, 0x2028, 0x2029, 0x202E, 0x2060, 0x2260, 0x226E, 0x3000, 0x37E, 0xA9BD, 0xE000, 0xFEFF,
                  0xFFFD, 0xFFFE, 0xFFFF, 0x111C9, 0x1D15F, 0x1D165, 0x1FFFF, 0xE0001, 0xE0100, 0x1171E]
    return few


CODE_POINTS_CJK = [c for c in CODE_POINTS if 0x3400 <= c <= 0x9FFF or 0xF900 <= c <= 0xFAFF or 0x20000 <= c <= 0x2FA1F]
POOLS = pools()
EMOJI = ["😀", "👍🏽", "👩‍👩‍👧‍👦", "❤️", "🇩🇪", "🏳️‍🌈", "✈︎", "☎️", "👨🏿‍🔬", "1️⃣", "🤖", "🌍", "⌚", "©️", "🕵️‍♀️"]


def text_of(kinds, length, between=0.15):
    return "".join(" " if R.random() < between else chr(R.choice(POOLS[R.choice(kinds)])) for _ in range(R.randrange(1, length)))


def ascii_text(length):
    return "".join(chr(R.choice([R.randrange(32, 127), R.randrange(97, 123)])) for _ in range(R.randrange(length)))


def mixed(parts, length):
    return "".join(part() for part in R.choices(parts, k=R.randrange(1, length)))


def long_word():
    unit = R.choice(["a", "Ab", "é", "e\u0301", "각", "İ", "x\u00ad", "я", "𐐀", "\u0905\u0902", "a\u302e", "\U0001d15f", "-", "字"])
    return R.choice(["", "to "]) + (unit * 110)[:R.choice([33, 34, 99, 100, 101, 102])] + R.choice(["", " x", "!", "\u0301"])


def lines():
    made = []
    for sentence in SENTENCES:
        made += [sentence, sentence.upper(), unicodedata.normalize("NFD", sentence)]
    letters = lambda: R.choice("abcdeABCDE éÉñ.,'中")
    mark, odd = lambda: chr(R.choice(POOLS["marks"])), lambda: chr(R.choice(POOLS["odd"]))
    special = lambda: R.choice(SPECIAL + ["[sep]", "[Mask]", "[SEP", "SEP]", "[[SEP]]", "[MAS", "[C", "]", "[unused1]", "[ SEP ]", "[UNK][UNK]"])
    word = lambda: R.choice(R.choice(SENTENCES).split())
    every = [kind for kind in POOLS if len(kind) == 2]
    kinds = [(300, lambda: text_of(every, 20)),
             (150, lambda: mixed([lambda: R.choice(EMOJI), letters, word], 8)),
             (250, lambda: mixed([letters, mark, mark, mark], 22)),
             (150, lambda: text_of(["cjk", "cjk", "edges", "marks", "Ll"], 16, 0.05)),
             (150, lambda: mixed([letters, odd, lambda: chr(R.choice(POOLS["Cf"])), lambda: chr(R.choice(POOLS["Cc"]))], 20)),
             (150, lambda: text_of(["right"], 30)),
             (150, lambda: text_of(["decomposed", "cased", "marks"], 20)),
             (100, long_word),
             (174, lambda: mixed([special, special, letters, mark, word], 9)),
             (150, lambda: ascii_text(50)),
             (110, lambda: " ".join(word() for _ in range(R.randrange(1, 9))))]
    for count, make in kinds:
        made += [make().replace("\n", "\t") for _ in range(count)]
    R.shuffle(made)
    made = [line.encode() for line in made]
    while len(made) < 2000:  # not UTF-8
        line = bytearray(R.choice(SENTENCES).encode()[:R.randrange(8, 60)])
        for _ in range(R.randrange(1, 6)):
            line[R.randrange(len(line))] = R.choice([0x80, 0xBF, 0xC0, 0xC3, 0xE2, 0xED, 0xF0, 0xF4, 0xF5, 0xFF])
        made.append(bytes(line).replace(b"\n", b" "))
    assert len(made) == 2000
    return made


def vocabulary_for(texts):
    """Most characters, many pieces, some words."""
    every = sorted({word for options in [DEFAULT, *OTHERS] for text in texts for word in words(text, options)})
    first, inside = {word[0] for word in every}, {c for word in every for c in word[1:]}
    tokens = {c for c in sorted(first) if R.random() < 0.95} | {"##" + c for c in sorted(inside) if R.random() < 0.9}
    pieces, longer = set(), [word for word in every if 2 <= len(word) <= 40]
    while len(pieces) < 1100:
        word = R.choice(longer)
        begin = R.choice([0, R.randrange(len(word) - 1)])
        pieces.add(("##" if begin else "") + word[begin:begin + R.randrange(2, 9)])
    tokens = [token for token in sorted(tokens | pieces) if "\n" not in token and "\r" not in token]
    for token in SPECIAL:  # anywhere
        tokens.insert(R.randrange(len(tokens)), token)
    return tokens


def main():
    published = (pathlib.Path(sys.argv[1]) / "vocab.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")
    here.mkdir(exist_ok=True)
    raw = lines()
    texts = [line.decode("utf-8", "replace") for line in raw]
    vocabulary = vocabulary_for(texts)
    ids = ids_of(vocabulary, DEFAULT, texts)
    columns = [ids_of(vocabulary, options, texts) for options in OTHERS] + [ids_of(published, DEFAULT, texts)]
    (here / "lines.txt").write_bytes(b"".join(line + b"\n" for line in raw))
    (here / "vocab.txt").write_bytes("".join(token + "\n" for token in vocabulary).encode())
    (here / "ids.txt").write_text("".join(ids))
    hashes = ["all " + " ".join(xxh("".join(column)) for column in columns)]
    hashes += [" ".join(xxh(line, 4) for line in row) for row in zip(*columns)]
    (here / "hashes.txt").write_text("\n".join(hashes) + "\n")

    every = SPECIAL[:4] + [prefix + chr(c) for c in CODE_POINTS for prefix in ("", "##")]
    columns = [iter(ids_of(every, options, [f"a{chr(c)}b" for c in CODE_POINTS])) for options in EXHAUSTIVE]
    with open(here / "code_points.txt", "w") as out:
        for first, last in RUNS:
            digests = [xxh("".join(next(column) for _ in range(first, last + 1)), 8) for column in columns]
            print(f"{first:X} {last:X}", *digests, file=out)

    unknown = vocabulary.index("[UNK]")
    tokens = [int(i) for line in ids for i in line.split()]
    print(f"{len(vocabulary)} tokens, {len(set(tokens))} of them used; {len(tokens)} in the lines, {tokens.count(unknown)} [UNK];"
          f" {len(RUNS)} runs, {len(CODE_POINTS)} code points")


if __name__ == "__main__":
    main()
