// Writes the corpus, the queries and the scores of Lucene that the test `lucene` compares.
//
// Documents and queries come from a generator with a fixed seed (java.util.Random, whose algorithm
// is specified), so the same version of Lucene writes the same files. Each query is built twice from
// the same parts: as the operator of `$search`, and as the query of Lucene that the reference makes
// of this operator. All documents are in one segment without deletions.

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.lucene.analysis.Analyzer;
import org.apache.lucene.analysis.CharArraySet;
import org.apache.lucene.analysis.DelegatingAnalyzerWrapper;
import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.core.KeywordAnalyzer;
import org.apache.lucene.analysis.core.SimpleAnalyzer;
import org.apache.lucene.analysis.core.WhitespaceAnalyzer;
import org.apache.lucene.analysis.en.EnglishAnalyzer;
import org.apache.lucene.analysis.standard.StandardAnalyzer;
import org.apache.lucene.analysis.tokenattributes.CharTermAttribute;
import org.apache.lucene.analysis.tokenattributes.PositionIncrementAttribute;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.FieldType;
import org.apache.lucene.document.StoredField;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.IndexOptions;
import org.apache.lucene.index.Term;
import org.apache.lucene.search.BooleanClause.Occur;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.BoostQuery;
import org.apache.lucene.search.ConstantScoreQuery;
import org.apache.lucene.search.DisjunctionMaxQuery;
import org.apache.lucene.search.FuzzyQuery;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.MatchAllDocsQuery;
import org.apache.lucene.search.MatchNoDocsQuery;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.RegexpQuery;
import org.apache.lucene.search.ScoreDoc;
import org.apache.lucene.search.WildcardQuery;
import org.apache.lucene.store.ByteBuffersDirectory;
import org.apache.lucene.util.QueryBuilder;

public class Scores {
  static final int DOCUMENTS = 500;
  static final int BEST = 20;

  static final Map<String, Analyzer> ANALYZERS = new TreeMap<>(Map.of(
      "t", new StandardAnalyzer(CharArraySet.EMPTY_SET),
      "sub.t", new StandardAnalyzer(CharArraySet.EMPTY_SET),
      "e", new EnglishAnalyzer(),
      "w", new WhitespaceAnalyzer(),
      "k", new KeywordAnalyzer(),
      "s", new SimpleAnalyzer(),
      "omit", new StandardAnalyzer(CharArraySet.EMPTY_SET),
      "docs", new StandardAnalyzer(CharArraySet.EMPTY_SET)));

  /** A field without norms, and one without frequencies and positions. */
  static FieldType typeOf(String field) {
    FieldType type = new FieldType(TextField.TYPE_NOT_STORED);
    type.setOmitNorms(field.equals("omit"));
    if (field.equals("docs")) {
      type.setIndexOptions(IndexOptions.DOCS);
    }
    type.freeze();
    return type;
  }

  static final Analyzer ANALYZER = new DelegatingAnalyzerWrapper(Analyzer.PER_FIELD_REUSE_STRATEGY) {
    @Override
    protected Analyzer getWrappedAnalyzer(String field) {
      return ANALYZERS.get(field);
    }
  };

  static final QueryBuilder BUILDER = new QueryBuilder(ANALYZER);

  /** Words with endings, for the stemmer; the first ones are the most frequent ones. */
  static final String[] ENGLISH = (
      "the of and a to in is it that for was on are as with they be at one have this from by hot "
      + "word but what some we can out other were all there when up use your how said an each she "
      + "which do their time if will way about many then them write would like so these her long "
      + "make thing see him two has look more day could go come did number sound no most people "
      + "possibly analogously runs running runner ran general generalizations generalization "
      + "generously university universe universal happy happiness happily sky skies dying die dies "
      + "lying lies tying ties news new innings inning relational conditional rational valency "
      + "hesitancy digitizer conformably radically differently vilely vietnamization predication "
      + "operator feudalism decisiveness hopefulness callousness formality sensitivity sensibility "
      + "triplicate formative formalize electricity electrical hopeful goodness revival allowance "
      + "inference airliner gyroscopic adjustable defensible irritant replacement adjustment "
      + "dependent adoption communism activate angularity homologous effective bowdlerize probate "
      + "rate cease controlling rolling apology apologies archaeology psychology psychologically "
      + "agreed agreement feed feeding plastered bled motoring sing conflated troubled sized hopping "
      + "tanned falling hissing fizzed failing filing ponies caress cats cat caresses dogs dog foxes "
      + "fox quick quicker quickly quickest brown browner lazy laziness jumps jumped jumping over "
      + "databases database documents document documented indexing index indexes indices scoring "
      + "scored scores score search searching searched searches queries query phrase phrases us ss "
      + "bus buses yes ivy toy toys employed employer employment employees being sees seeing using "
      + "sizes singly simply easily early earliest ability abilities capable capably terrible "
      + "terribly noble nobly double doubly").split(" ");

  /** What analyzers do not agree about. */
  static final String[] SPECIAL = {
      "dog's", "DOG'S", "dogs'", "o'neil\u2019s", "can't", "wi-fi", "foo_bar", "3.14", "1,000", "a:b",
      "e.g.", "U.S.A.", "na\u00efve", "Stra\u00dfe", "\u039f\u0394\u039f\u03a3", "\u0130stanbul",
      "\u6771\u4eac\u90fd", "\u3072\u3089\u304c\u306a", "\u30ab\u30bf\u30ab\u30ca", "\ud55c\uad6d\uc5b4",
      "x\u00a0y", "\u00c9T\u00c9", "caf\u00e9", "cafe\u0301", "x2y", "007", "C++", "user@host.org",
      "p\u2028q", "\u0416\u0443\u043a", "Q", "i.d", "2nd", "abc123def", "--", "\ud835\udc00b",
      "\u0e44\u0e17\u0e22\u0e04\u0e33", "\ud83d\ude00", "\ud83d\ude00ok", "\u0939\u093f\u0928\u094d\u0926\u0940",
      "\u2167", "\u24d0\u24d1", "\u1e9e", "\u01c5a", "A\ufe0fb", "l\u00b7l", "x\u001cy", "\u00aan",
  };

  /** More of it; only the terms of these texts are compared. */
  static final String[] TEXTS = {
      "\u05e6\u05d4\"\u05dc \u05d2'", "\u0645\u0631\u062d\u0628\u0627\u064b", "\u0ea5\u0eb2\u0ea7 \u1781\u17d2\u1798\u17c2\u179a",
      "\u1019\u103c\u1014\u103a\u1019\u102c", "\u1112\u1161\u11ab", "\ud83d\udc68\u200d\ud83d\udc69\u200d\ud83d\udc67",
      "\ud83c\udde9\ud83c\uddea\ud83c\uddeb\ud83c\uddf7", "1\ufe0f\u20e3", "\u263a\ufe0f", "\u2764", "\u00a9\u00ae", "\ud83d\udc4d\ud83c\udffd",
      "a\u200db", "x\u00adsoft", "_", "__a__", "a_1_b", "1_000", "1.2.3.4", "1,2;3", "a.b.c.", ".5", "5.",
      "x:y:z", "12:30", "it's", "'quoted'", "\u2018quoted\u2019", "rock'n'roll", "A.", "A.B", "a\u00b7b", "a\u2027b",
      "\u30ab\u30bf\u30ab\u30ca\u30fc", "\uff76\uff80\uff76\uff85", "\u30a2\u30fb\u30a4", "\u3005\u3007", "\u6f22\u5b57kanji\u304b\u306a",
      "\ud842\udfb7\u91ce\u5bb6", "\u0391\u03a3 \u03a3\u0391\u03a3", "I\u0307stanbul", "\ufb01n", "\u212b\u2126", "\u01c5",
      "\u0e01\u0e02 abc\u0e01", "\u00bd \u00b2 \u2460 \u0660\u0661", "\u0966\u0967", "\u2160\u2163", "\u00aa\u00ba", "\u0345\u0363",
      "\u0300a \u0300", "e\u0301\u0327", "\uff21\uff22\uff11\uff12", "tab\tx", "nbsp\u00a0x", "nnbsp\u202fx", "nel\u0085x", "fs\u001cx",
      "zwsp\u200bx", "bom\ufeffx", "ideo\u3000x", "mvs\u180ex", "ogham\u1680x", "lf\nx", "vt\u000bx", "", " ", "...",
      "s", "'s", "as's", "boss's", "S'S", "dog\u2019s", "dog\uff07s", "\u02bcs a\u02bcs", "a\u2019", "W".repeat(300),
      "w ".repeat(3) + "\u00e9".repeat(256) + " z", "\ud835\udc00".repeat(130), "\u10a0\u1c90\u13a0\uab70",
  };

  static final Random RANDOM = new Random(20_261);

  static int below(int limit) {
    return RANDOM.nextInt(limit);
  }

  static boolean oneIn(int count) {
    return below(count) == 0;
  }

  @SafeVarargs
  static <T> T one(T... items) {
    return items[below(items.length)];
  }

  /** A number below the limit; small ones are frequent, as Zipf's law says. */
  static int zipf(int limit) {
    return Math.min(limit - 1, (int) Math.pow(limit, RANDOM.nextDouble()) - 1);
  }

  /** A made-up word: frequent numbers have short ones, and neighbours are similar. */
  static String syllables(int number) {
    String[] syllables = {"ba", "ke", "mi", "to", "ru", "sel", "an", "dor", "ix", "ul"};
    StringBuilder word = new StringBuilder();
    for (int rest = number; word.length() == 0 || rest > 0; rest /= 10) {
      word.append(syllables[rest % 10]);
    }
    return word.toString();
  }

  static String word() {
    String word = switch (below(20)) {
      case 0 -> one(SPECIAL);
      case 1, 2, 3, 4, 5, 6 -> syllables(zipf(600));
      default -> ENGLISH[zipf(ENGLISH.length)];
    };
    return switch (below(12)) {
      case 0 -> word.substring(0, 1).toUpperCase() + word.substring(1);
      case 1 -> oneIn(4) ? word.toUpperCase() : word;
      default -> word;
    };
  }

  static String text(int words) {
    StringBuilder text = new StringBuilder();
    String last = word();
    for (int at = 0; at < words; at++) {
      last = oneIn(6) ? last : word();
      text.append(at == 0 ? "" : one(" ", " ", " ", " ", ", ", "  ", ". ")).append(last);
    }
    return text.toString();
  }

  /** The strings of a field: none, one, or several. */
  static List<String> strings(String field) {
    if (oneIn(8)) {
      return List.of();
    }
    int count = oneIn(5) ? 2 + below(3) : 1;
    List<String> strings = new ArrayList<>();
    for (int at = 0; at < count; at++) {
      int words = switch (below(10)) {
        case 0 -> 0;
        case 1 -> oneIn(4) ? 100 + below(250) : 30 + below(30);
        case 2 -> 20 + below(40);
        default -> 1 + below(15);
      };
      strings.add(text(field.equals("k") ? Math.min(words, below(3)) : words));
    }
    return strings;
  }

  static String quoted(String text) {
    StringBuilder quoted = new StringBuilder("\"");
    for (char letter : text.toCharArray()) {
      if (letter == '"' || letter == '\\') {
        quoted.append('\\').append(letter);
      } else if (letter < 32 || letter == 0x85 || letter == 0x2028) {
        quoted.append(String.format("\\u%04x", (int) letter));
      } else {
        quoted.append(letter);
      }
    }
    return quoted.append('"').toString();
  }

  static String list(List<String> items) {
    return items.stream().map(Scores::quoted).collect(Collectors.joining(",", "[", "]"));
  }

  /** A document as JSON; a field with one string has no array. */
  static String json(int id, Map<String, List<String>> document) {
    StringBuilder json = new StringBuilder("{\"_id\":" + id);
    document.forEach((field, strings) -> {
      String value = strings.size() == 1 ? quoted(strings.get(0)) : list(strings);
      json.append(field.equals("sub.t")
          ? ",\"sub\":{\"t\":" + value + "}"
          : ",\"" + field + "\":" + value);
    });
    return json.append("}").toString();
  }

  /** An operator of `$search`, and the query of Lucene. */
  record Pair(String json, Query query) {}

  /** One query of Lucene for each field and text; one that matches is enough. */
  static Query any(List<Query> queries) {
    if (queries.size() == 1) {
      return queries.get(0);
    }
    BooleanQuery.Builder any = new BooleanQuery.Builder();
    queries.forEach(query -> any.add(query, Occur.SHOULD));
    return any.build();
  }

  interface Single {
    Query of(String field, String text);
  }

  static Query each(List<String> fields, List<String> texts, Single single) {
    List<Query> queries = new ArrayList<>();
    for (String field : fields) {
      for (String text : texts) {
        Query query = single.of(field, text);
        queries.add(query == null ? new MatchNoDocsQuery() : query);
      }
    }
    return any(queries);
  }

  static String oneOrList(List<String> items) {
    return items.size() == 1 ? quoted(items.get(0)) : list(items);
  }

  static Pair operator(
      String name, List<String> fields, List<String> texts, String options, Single single) {
    String json = "{\"" + name + "\":{\"path\":" + oneOrList(fields) + ",\"query\":"
        + oneOrList(texts) + options + "}}";
    return new Pair(json, each(fields, texts, single));
  }

  static Pair text(List<String> fields, List<String> texts, Occur occur) {
    String options = occur == Occur.MUST ? ",\"matchCriteria\":\"all\"" : "";
    return operator("text", fields, texts, options,
        (field, text) -> BUILDER.createBooleanQuery(field, text, occur));
  }

  static Pair phrase(List<String> all, List<String> texts, int slop) {
    // A field without positions has no phrases.
    List<String> fields = all.stream().map(field -> field.equals("docs") ? "t" : field).toList();
    fields = fields.stream().distinct().toList();
    String options = slop == 0 ? "" : ",\"slop\":" + slop;
    return operator("phrase", fields, texts, options,
        (field, text) -> BUILDER.createPhraseQuery(field, text, slop));
  }

  static Pair pattern(String name, List<String> fields, List<String> patterns) {
    return operator(name, fields, patterns, ",\"allowAnalyzedField\":true", (field, pattern) -> {
      Term term = new Term(field, ANALYZER.normalize(field, pattern));
      return name.equals("regex") ? new RegexpQuery(term) : new WildcardQuery(term);
    });
  }

  static List<String> tokens(String field, String text) {
    List<String> tokens = new ArrayList<>();
    try (TokenStream stream = ANALYZER.tokenStream(field, text)) {
      CharTermAttribute term = stream.addAttribute(CharTermAttribute.class);
      stream.reset();
      while (stream.incrementToken()) {
        tokens.add(term.toString());
      }
      stream.end();
    } catch (java.io.IOException error) {
      throw new IllegalStateException(error);
    }
    return tokens;
  }

  static Pair fuzzy(
      List<String> fields, List<String> texts, Occur occur, int edits, int prefix, int expansions) {
    String options = ",\"fuzzy\":{\"maxEdits\":" + edits + ",\"prefixLength\":" + prefix
        + ",\"maxExpansions\":" + expansions + "}"
        + (occur == Occur.MUST ? ",\"matchCriteria\":\"all\"" : "");
    return operator("text", fields, texts, options, (field, text) -> {
      List<Query> queries = new ArrayList<>();
      for (String token : tokens(field, text)) {
        queries.add(new FuzzyQuery(new Term(field, token), edits, prefix, expansions, true));
      }
      if (queries.size() < 2) {
        return queries.isEmpty() ? null : queries.get(0);
      }
      BooleanQuery.Builder all = new BooleanQuery.Builder();
      queries.forEach(query -> all.add(query, occur));
      return all.build();
    });
  }

  /** Adds a member to the operator's options. */
  static String with(String json, String member) {
    return json.substring(0, json.length() - 2) + "," + member + "}}";
  }

  static Pair boosted(Pair pair, float boost) {
    return new Pair(with(pair.json, "\"score\":{\"boost\":{\"value\":" + boost + "}}"),
        new BoostQuery(pair.query, boost));
  }

  static Pair constant(Pair pair, float score) {
    return new Pair(with(pair.json, "\"score\":{\"constant\":{\"value\":" + score + "}}"),
        new BoostQuery(new ConstantScoreQuery(pair.query), score));
  }

  static String clauses(String name, List<Pair> pairs) {
    return pairs.isEmpty() ? "" : "\"" + name + "\":"
        + pairs.stream().map(Pair::json).collect(Collectors.joining(",", "[", "],"));
  }

  static Pair compound(int depth) {
    List<Pair> must = clausesOf(below(3), depth);
    List<Pair> filter = clausesOf(oneIn(3) ? 1 : 0, depth);
    List<Pair> not = clausesOf(oneIn(3) ? 1 + below(2) : 0, depth);
    List<Pair> should = clausesOf(below(5), depth);
    if (must.isEmpty() && filter.isEmpty() && not.isEmpty() && should.isEmpty()) {
      should = clausesOf(2, depth);
    }
    int minimum = should.isEmpty() || oneIn(2) ? 0 : below(Math.min(should.size(), 3) + 1);
    float tie = !should.isEmpty() && minimum < 2 && oneIn(5) ? one(0f, 0.25f, 1f) : -1;
    BooleanQuery.Builder query = new BooleanQuery.Builder();
    must.forEach(pair -> query.add(pair.query, Occur.MUST));
    filter.forEach(pair -> query.add(pair.query, Occur.FILTER));
    not.forEach(pair -> query.add(pair.query, Occur.MUST_NOT));
    if (must.isEmpty() && filter.isEmpty() && should.isEmpty()) {
      query.add(new MatchAllDocsQuery(), Occur.FILTER);
    }
    if (tie >= 0 && should.size() > 1) {
      query.add(new DisjunctionMaxQuery(should.stream().map(Pair::query).toList(), tie), Occur.SHOULD);
    } else {
      should.forEach(pair -> query.add(pair.query, Occur.SHOULD));
    }
    if (!should.isEmpty()) {
      query.setMinimumNumberShouldMatch(minimum);
    }
    String json = clauses("must", must) + clauses("filter", filter) + clauses("mustNot", not)
        + clauses("should", should);
    json += minimum > 0 ? "\"minimumShouldMatch\":" + minimum + "," : "";
    json += tie >= 0 ? "\"score\":{\"dismax\":{\"tieBreakerScore\":" + tie + "}}," : "";
    json = "{\"compound\":{" + json.substring(0, json.length() - 1) + "}}";
    Pair pair = new Pair(json, query.build());
    return tie < 0 && oneIn(6) ? boosted(pair, one(0.5f, 3f)) : pair;
  }

  static List<Pair> clausesOf(int count, int depth) {
    List<Pair> pairs = new ArrayList<>();
    for (int at = 0; at < count; at++) {
      Pair pair = depth > 0 && oneIn(6) ? compound(depth - 1) : clause();
      pairs.add(pair);
    }
    return pairs;
  }

  static Pair clause() {
    List<String> fields = fields(1 + below(2));
    Pair pair = switch (below(8)) {
      case 0 -> phrase(fields, List.of(window(fields.get(0), 2, 0)), below(4));
      case 1 -> pattern("wildcard", fields, List.of(wildcard()));
      case 2 -> fuzzy(fields, List.of(wordOf(fields.get(0))), Occur.SHOULD, 1 + below(2), 1, 10);
      default -> text(fields, List.of(words(1 + below(3), fields.get(0))), Occur.SHOULD);
    };
    return scored(pair);
  }

  static Pair scored(Pair pair) {
    return switch (below(8)) {
      case 0 -> boosted(pair, one(0.25f, 1.5f, 7f));
      case 1 -> constant(pair, one(0f, 1f, 2.5f));
      default -> pair;
    };
  }

  static List<Map<String, List<String>>> corpus = new ArrayList<>();

  static List<String> fields(int count) {
    List<String> fields = new ArrayList<>(ANALYZERS.keySet());
    Collections.shuffle(fields, RANDOM);
    return fields.subList(0, count);
  }

  /** A string that some document has in the field, with at least so many words. */
  static String string(String field, int words) {
    while (true) {
      List<String> strings = one(corpus.toArray(Map[]::new)).get(field) instanceof List<?> list
          ? list.stream().map(Object::toString).toList() : List.of();
      if (!strings.isEmpty()) {
        String string = strings.get(below(strings.size()));
        if (string.split(" +").length >= words && !string.isBlank()) {
          return string;
        }
      }
    }
  }

  static String wordOf(String field) {
    if (field.equals("k")) {
      return string(field, 1);
    }
    return oneIn(3) ? word() : one(string(field, 1).trim().split(" +"));
  }

  static String words(int count, String field) {
    List<String> words = new ArrayList<>();
    for (int at = 0; at < count; at++) {
      words.add(at > 0 && oneIn(8) ? words.get(at - 1) : wordOf(field));
    }
    return String.join(" ", words);
  }

  /** Words that follow one another in a document; some are left out or have other places. */
  static String window(String field, int count, int changes) {
    if (field.equals("k")) {
      return string(field, 1);
    }
    String[] all = string(field, count + changes).trim().split(" +");
    int from = below(Math.max(1, all.length - count - changes));
    List<String> words = new ArrayList<>(Arrays.asList(all)
        .subList(from, Math.min(all.length, from + count + changes)));
    for (int at = 0; at < changes && words.size() > count; at++) {
      words.remove(below(words.size()));
    }
    if (changes > 0 && oneIn(2)) {
      Collections.swap(words, below(words.size()), below(words.size()));
    }
    return String.join(" ", words);
  }

  static String escaped(String text, String letters) {
    StringBuilder escaped = new StringBuilder();
    for (char letter : text.toCharArray()) {
      escaped.append(letters.indexOf(letter) >= 0 ? "\\" : "").append(letter);
    }
    return escaped.toString();
  }

  static String wildcard() {
    String word = escaped(one(ENGLISH), "*?\\");
    int at = below(word.length());
    return switch (below(5)) {
      case 0 -> "*" + word.substring(at);
      case 1 -> word.substring(0, at) + "?" + word.substring(at + 1);
      case 2 -> word.substring(0, at) + "*" + word.substring(word.length() - 1);
      case 3 -> word.toUpperCase().substring(0, at + 1) + "*";
      default -> word.substring(0, at + 1) + "*";
    };
  }

  static String regex() {
    String word = one(ENGLISH);
    int at = below(word.length());
    return switch (below(6)) {
      case 0 -> ".*" + word.substring(at);
      case 1 -> word.substring(0, at) + "[a-m]" + word.substring(at + 1);
      case 2 -> "(" + word + "|" + one(ENGLISH) + ")(s|ing)?";
      case 3 -> word.substring(0, at + 1) + "[^aeiou]{1,3}";
      case 4 -> word.substring(0, at + 1) + "+.*";
      default -> "(ba|ke|mi){2,}" + one("", ".?", "to+");
    };
  }

  /** A word with some letters changed. */
  static String misspelt(String word, int edits) {
    StringBuilder changed = new StringBuilder(word);
    for (int edit = 0; edit < edits && changed.length() > 1; edit++) {
      int at = below(changed.length() - 1);
      switch (below(4)) {
        case 0 -> changed.deleteCharAt(at);
        case 1 -> changed.insert(at, (char) ('a' + below(26)));
        case 2 -> changed.setCharAt(at, (char) ('a' + below(26)));
        default -> changed.append(changed.charAt(at)).deleteCharAt(at);
      }
    }
    return changed.toString();
  }

  static String misspelt(String field, int words, int edits) {
    List<String> all = new ArrayList<>();
    for (int at = 0; at < words; at++) {
      all.add(misspelt(oneIn(4) ? syllables(zipf(600)) : wordOf(field), below(edits + 1)));
    }
    return String.join(" ", all);
  }

  static Pair make(String kind) {
    String field = fields(1).get(0);
    List<String> one = List.of(field);
    return switch (kind) {
      case "term" -> text(one, List.of(wordOf(field)), Occur.SHOULD);
      case "special" -> text(one, List.of(one(SPECIAL)), one(Occur.SHOULD, Occur.MUST));
      case "stem" -> text(List.of("e"), List.of(one(ENGLISH)), Occur.SHOULD);
      case "any" -> text(one, List.of(words(2 + below(4), field)), Occur.SHOULD);
      case "all" -> text(one, List.of(words(2 + below(2), field)), Occur.MUST);
      case "queries" -> text(one, List.of(words(1, field), words(2, field)), Occur.SHOULD);
      case "paths" -> {
        List<String> fields = fields(2 + below(3));
        yield switch (below(4)) {
          case 0 -> phrase(fields, List.of(window(fields.get(0), 2, 0)), below(3));
          case 1 -> fuzzy(fields, List.of(misspelt(fields.get(0), 1, 1)), Occur.SHOULD, 1, 0, 50);
          case 2 -> text(fields, List.of(words(2, fields.get(0))), Occur.MUST);
          default -> text(fields, List.of(words(2, fields.get(0))), Occur.SHOULD);
        };
      }
      case "phrase" -> phrase(one, List.of(window(field, 2 + below(2), 0)), 0);
      case "slop" -> {
        int changes = 1 + below(2);
        yield phrase(one, List.of(window(field, 2 + below(3), changes)), 1 + below(8));
      }
      case "repeats" -> {
        String word = one("the", "of", "a", "ba", "ke", "to", "and");
        String other = one("the", "of", "ba", "mi", "in", "ke");
        String text = String.join(" ", one(
            List.of(word, word), List.of(word, other, word), List.of(word, word, other),
            List.of(word, other), List.of(word, word, word), List.of(other, word, word, other)));
        yield phrase(List.of(one("t", "w", "s", "sub.t")), List.of(text), below(12));
      }
      case "wildcard" -> pattern("wildcard", one, List.of(wildcard()));
      case "regex" -> pattern("regex", one, List.of(regex()));
      case "patterns" -> pattern("wildcard", fields(2), List.of(wildcard(), wildcard()));
      case "fuzzy" -> {
        int edits = 1 + below(2);
        yield fuzzy(one, List.of(misspelt(field, 1, edits)), Occur.SHOULD, edits, below(4),
            one(1, 3, 10, 50));
      }
      case "fuzzy words" -> {
        int edits = 1 + below(2);
        yield fuzzy(one, List.of(misspelt(field, 2 + below(2), edits)),
            one(Occur.SHOULD, Occur.MUST), edits, below(3), one(3, 50));
      }
      case "boost" -> boosted(text(one, List.of(words(2, field)), Occur.SHOULD), one(0.1f, 2f, 10f));
      case "constant" -> constant(text(one, List.of(words(2, field)), Occur.SHOULD), one(0f, 4f));
      case "compound" -> compound(1);
      default -> throw new IllegalArgumentException(kind);
    };
  }

  /** The terms of a text with their positions, as JSON. */
  static String analyzed(String field, String text) {
    List<String> terms = new ArrayList<>();
    try (TokenStream stream = ANALYZER.tokenStream(field, text)) {
      CharTermAttribute term = stream.addAttribute(CharTermAttribute.class);
      PositionIncrementAttribute step = stream.addAttribute(PositionIncrementAttribute.class);
      stream.reset();
      for (int position = -1; stream.incrementToken(); ) {
        position += step.getPositionIncrement();
        terms.add("[" + position + "," + quoted(term.toString()) + "]");
      }
      stream.end();
    } catch (java.io.IOException error) {
      throw new IllegalStateException(error);
    }
    return "{\"path\":" + quoted(field) + ",\"text\":" + quoted(text) + ",\"terms\":["
        + String.join(",", terms) + "]}";
  }

  /** Texts with their terms by all analyzers, and the stems of words. */
  static List<String> analyses() {
    List<String> lines = new ArrayList<>();
    for (String field : List.of("t", "e", "w", "s", "k")) {
      for (String text : SPECIAL) {
        lines.add(analyzed(field, text));
      }
      for (String text : TEXTS) {
        lines.add(analyzed(field, text));
      }
    }
    for (String word : ENGLISH) {
      lines.add(analyzed("e", word));
    }
    return lines;
  }

  public static void main(String[] arguments) throws Exception {
    Path folder = Path.of(arguments[0]);
    List<String> lines = new ArrayList<>();
    ByteBuffersDirectory directory = new ByteBuffersDirectory();
    try (IndexWriter writer = new IndexWriter(directory, new IndexWriterConfig(ANALYZER))) {
      for (int id = 0; id < DOCUMENTS; id++) {
        Map<String, List<String>> fields = new TreeMap<>();
        Document document = new Document();
        document.add(new StoredField("id", id));
        for (String field : ANALYZERS.keySet()) {
          List<String> strings = strings(field);
          if (!strings.isEmpty()) {
            fields.put(field, strings);
          }
          strings.forEach(text -> document.add(new Field(field, text, typeOf(field))));
        }
        corpus.add(fields);
        lines.add(json(id, fields));
        writer.addDocument(document);
      }
      writer.forceMerge(1);
    }
    Files.write(folder.resolve("corpus.jsonl"), lines, StandardCharsets.UTF_8);

    Files.write(folder.resolve("terms.jsonl"), analyses(), StandardCharsets.UTF_8);

    Map<String, Integer> kinds = new TreeMap<>(Map.ofEntries(
        Map.entry("term", 80), Map.entry("special", 70), Map.entry("stem", 60),
        Map.entry("any", 90), Map.entry("all", 60), Map.entry("queries", 30),
        Map.entry("paths", 60), Map.entry("phrase", 60), Map.entry("slop", 90),
        Map.entry("repeats", 60), Map.entry("wildcard", 40), Map.entry("regex", 40),
        Map.entry("patterns", 20), Map.entry("fuzzy", 70), Map.entry("fuzzy words", 30),
        Map.entry("boost", 20), Map.entry("constant", 20), Map.entry("compound", 100)));
    lines.clear();
    try (DirectoryReader reader = DirectoryReader.open(directory)) {
      if (reader.leaves().size() != 1) {
        throw new IllegalStateException("more than one segment");
      }
      IndexSearcher searcher = new IndexSearcher(reader);
      for (Map.Entry<String, Integer> kind : kinds.entrySet()) {
        int empty = 0;
        for (int at = 0; at < kind.getValue(); ) {
          Pair pair = make(kind.getKey());
          int count = searcher.count(pair.query);
          // A few queries without hits are enough.
          if (count == 0 && ++empty > kind.getValue() / 10) {
            continue;
          }
          ScoreDoc[] best = searcher.search(pair.query, BEST).scoreDocs;
          String hits = Arrays.stream(best)
              .map(hit -> "[" + hit.doc + "," + hit.score + "]")
              .collect(Collectors.joining(",", "[", "]"));
          lines.add("{\"kind\":" + quoted(kind.getKey()) + ",\"query\":" + pair.json
              + ",\"count\":" + count + ",\"hits\":" + hits + "}");
          at++;
        }
      }
    }
    Files.write(folder.resolve("expected.jsonl"), lines, StandardCharsets.UTF_8);
    System.out.println(lines.size() + " queries");
  }
}
