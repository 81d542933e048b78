// Measures Lucene with the documents of the example `compare`: the processor time of a build, of all
// threads of the process, and of a query for the best 10 of two words. All documents are in one
// segment.

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;
import org.apache.lucene.analysis.CharArraySet;
import org.apache.lucene.analysis.standard.StandardAnalyzer;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.Term;
import org.apache.lucene.search.BooleanClause.Occur;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.TermQuery;
import org.apache.lucene.search.TopDocs;
import org.apache.lucene.store.MMapDirectory;

public class Times {
  public static void main(String[] arguments) throws Exception {
    Path folder = Path.of(arguments[0]);
    MMapDirectory directory = new MMapDirectory(Files.createTempDirectory(folder, "lucene"));
    OperatingSystemMXBean process =
        ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);
    long begun = process.getProcessCpuTime();
    long documents = 0;
    IndexWriterConfig config = new IndexWriterConfig(new StandardAnalyzer(CharArraySet.EMPTY_SET));
    try (IndexWriter writer = new IndexWriter(directory, config);
        Stream<String> lines = Files.lines(folder.resolve("documents.txt"))) {
      for (String line : (Iterable<String>) lines::iterator) {
        Document document = new Document();
        document.add(new TextField("t", line, Field.Store.NO));
        writer.addDocument(document);
        documents++;
      }
      writer.forceMerge(1);
    }
    System.out.printf("Lucene: %.0f documents a second of one core%n",
        documents * 1e9 / (process.getProcessCpuTime() - begun));
    ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    try (DirectoryReader reader = DirectoryReader.open(directory)) {
      IndexSearcher searcher = new IndexSearcher(reader);
      searcher.setQueryCache(null);
      for (Occur occur : new Occur[] {Occur.SHOULD, Occur.MUST}) {
        long best = Long.MAX_VALUE;
        double sum = 0;
        // The first rounds compile the code.
        for (int round = 0; round < 40; round++) {
          long start = threads.getCurrentThreadCpuTime();
          sum = 0;
          for (int rank = 10; rank < 210; rank++) {
            BooleanQuery query = new BooleanQuery.Builder()
                .add(new TermQuery(new Term("t", "w" + rank)), occur)
                .add(new TermQuery(new Term("t", "w" + rank * 7)), occur)
                .build();
            TopDocs hits = searcher.search(query, 10);
            sum += hits.scoreDocs.length == 0 ? 0 : hits.scoreDocs[0].score;
          }
          best = Math.min(best, threads.getCurrentThreadCpuTime() - start);
        }
        System.out.printf("Lucene, a %s b: %.1fµs; the sum of the best scores is %.3f%n",
            occur == Occur.MUST ? "AND" : "OR", best / 200e3, sum);
      }
    }
  }
}
