// Image metadata: JSON-RPC by hand in Java. Exceptions of a tool become results with isError: their
// message, or their class where they have none.

import java.io.*;
import java.net.*;
import java.net.http.*;
import java.nio.*;
import java.nio.channels.*;
import java.nio.charset.*;
import java.nio.file.*;
import java.sql.DriverManager;
import java.text.*;
import java.time.*;
import java.time.format.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.locks.*;
import java.util.regex.*;
import java.util.stream.*;
import java.util.zip.*;
import javax.imageio.ImageIO;
import javax.xml.parsers.DocumentBuilderFactory;

public class Gallery {
    static final String UPSTREAM = System.getenv().getOrDefault("UPSTREAM", "http://127.0.0.1:9");
    static final int CLOSED_PORT = Integer.parseInt(System.getenv().getOrDefault("CLOSED_PORT", "9"));
    static final Path HOME = Path.of("album");

    interface Handler { Object run(Map<String, Object> args) throws Throwable; }

    /** An error that the author raises with a text for the caller. */
    static class BadRequest extends RuntimeException { BadRequest(String text) { super(text); } }

    record Tool(String name, Map<String, String> parameters, Handler handler) {}

    record Photo(String title, Integer iso, double[] position, String taken, List<String> tags, String camera) {}

    static final Map<String, Tool> TOOLS = new LinkedHashMap<>();
    static final List<Map<String, Object>> PLAN = new ArrayList<>();
    static final Map<String, Photo> PHOTOS = new TreeMap<>();

    static Map<String, Object> map(Object... pairs) {
        Map<String, Object> result = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) result.put((String) pairs[i], pairs[i + 1]);
        return result;
    }

    static Map<String, Object> call(String cause, String outcome, Object... arguments) {
        return map("cause", cause, "outcome", outcome, "arguments", map(arguments));
    }

    static Map<String, Object> fails(String cause, Object... arguments) { return call(cause, "error", arguments); }
    static Map<String, Object> hides(String cause, Object... arguments) { return call(cause, "hidden", arguments); }
    static Map<String, Object> works(Object... arguments) { return call(null, "ok", arguments); }

    @SafeVarargs
    static void tool(String name, String parameters, Handler handler, Map<String, Object>... calls) {
        Map<String, String> types = new LinkedHashMap<>();
        for (String each : parameters.split(" ")) types.put(each.split(":")[0], each.split(":")[1]);
        TOOLS.put(name, new Tool(name, types, handler));
        for (Map<String, Object> call : calls) {
            call.put("tool", name);
            PLAN.add(call);
        }
    }

    static Photo photo(Map<String, Object> args) {
        if (!(args.get("id") instanceof String id)) throw new BadRequest("Parameter 'id' is missing or is not a string");
        if (!PHOTOS.containsKey(id)) throw new BadRequest("No photo with id " + id);
        return PHOTOS.get(id);
    }

    static String get(String path) throws Exception {
        HttpClient client = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(1)).build();
        String url = path.startsWith("http") ? path : UPSTREAM + "/" + path;
        HttpRequest request = HttpRequest.newBuilder(URI.create(url)).timeout(Duration.ofMillis(400)).build();
        HttpResponse<String> reply = client.send(request, HttpResponse.BodyHandlers.ofString());
        if (reply.statusCode() >= 400) throw new IOException("Server returned HTTP response code: " + reply.statusCode() + " for URL: " + url);
        return reply.body();
    }

    static int depth(String album) { return 1 + depth(album.equals("root") ? "summer" : "root"); }

    static void prepare() throws Exception {
        Files.createDirectories(HOME.resolve("previews"));
        Files.write(HOME.resolve("index.ser"), new byte[] {(byte) 0xac, (byte) 0xed, 0, 5, 's'});
        Files.write(HOME.resolve("captions.txt"), new byte[] {'S', 'o', 'm', 'm', 'e', 'r', (byte) 0xfc, 'b', '\n'});
        Files.write(HOME.resolve("thumbs.gz"), "thumbnails".getBytes());
        Files.writeString(HOME.resolve("sidecar.xmp"), "<x:xmpmeta><rdf>");
        Files.writeString(HOME.resolve("lens.properties"), "f50=1.8\nf85=\n");
        Files.writeString(HOME.resolve("settings.json"), "{\"quality\": 85, ");
        Files.writeString(HOME.resolve("resize.sh"), "#!/bin/sh\nexit 0\n");
        Files.write(HOME.resolve("p1.jpg"), new byte[] {(byte) 0xff, (byte) 0xd8, (byte) 0xff, (byte) 0xe0, 0, 16, 'J'});
        for (String[] link : new String[][] {{"export.zip", "/dev/full"}, {"ratings", "/proc/sys/kernel/ostype"}}) {
            Files.deleteIfExists(HOME.resolve(link[0]));
            Files.createSymbolicLink(HOME.resolve(link[0]), Path.of(link[1]));
        }
        PHOTOS.put("p1", new Photo("Sunset", 200, new double[] {47.1, 15.4}, "2026-07-01T20:15:00", List.of("sea", "sky"), "f50"));
        PHOTOS.put("p2", new Photo(null, null, new double[] {}, "July 2026", null, "f85"));
        PHOTOS.put("p3", new Photo("Snow", 0, null, "2026-13-01T00:00:00", List.of(), "f200"));
    }

    static void define() {
        tool("photo_info", "id:string", args -> {
            Photo photo = photo(args);
            return photo.taken() + " " + photo.camera();
        }, works("id", "p1"), works("id", "p2"), fails("not_found", "id", "p99"), fails("validation"), fails("validation", "id", 4));
        tool("title_length", "id:string", args -> photo(args).title().length(), works("id", "p1"), fails("crash", "id", "p2"), works("id", "p3"));
        tool("latitude", "id:string", args -> photo(args).position()[0], works("id", "p1"), fails("crash", "id", "p2"), fails("crash", "id", "p3"));
        tool("exposure", "id:string", args -> 1600 / photo(args).iso(), works("id", "p1"), fails("crash", "id", "p3"), fails("crash", "id", "p2"));
        tool("taken_on", "id:string", args -> LocalDateTime.parse(photo(args).taken()).getDayOfWeek(), works("id", "p1"), fails("crash", "id", "p2"), fails("crash", "id", "p3"));
        tool("first_tag", "id:string", args -> photo(args).tags().get(0), works("id", "p1"), fails("crash", "id", "p3"));
        tool("add_tag", "id:string tag:string", args -> photo(args).tags().add((String) args.get("tag")), fails("crash", "id", "p1", "tag", "sun"), fails("crash", "id", "p2", "tag", "sun"));
        tool("album_depth", "album:string", args -> depth((String) args.get("album")), fails("crash", "album", "summer"));
        tool("prune_tags", "tag:string", args -> {
            List<String> all = new ArrayList<>(List.of("sea", "sky", "sun"));
            for (String tag : all) if (tag.equals("sea")) all.remove(tag);
            return all;
        }, fails("crash", "tag", "sea"));
        tool("rating", "id:string", args -> {
            Object stars = Map.<String, Object>of("p1", "five").get((String) args.get("id"));
            return stars == null ? "not rated" : (Integer) stars + 1;
        }, works("id", "p2"), fails("crash", "id", "p1"));
        tool("aperture", "id:string", args -> {
            Properties lens = new Properties();
            try (Reader reader = Files.newBufferedReader(HOME.resolve("lens.properties"))) { lens.load(reader); }
            return Double.parseDouble(lens.getProperty(photo(args).camera()));
        }, works("id", "p1"), fails("misconfig", "id", "p2"));
        tool("palette", "id:string", args -> {
            int[] counts = {1, 2, 3};
            assert counts.length > 3;
            return IntStream.of(counts).boxed().collect(Collectors.toMap(n -> n % 2, n -> n));
        }, fails("crash", "id", "p1"));
        tool("slideshow", "album:string", args -> {
            Iterator<String> photos = List.of("p1").iterator();
            return photos.next() + photos.next();
        }, fails("crash", "album", "summer"));
        tool("watermark", "id:string", args -> { throw new IllegalStateException(); }, fails("crash", "id", "p1"), fails("crash", "id", "p2"));
        tool("orientation", "id:string", args -> switch (photo(args).title()) {
            case "Sunset" -> "landscape";
            default -> throw new AssertionError("unexpected orientation tag 9");
        }, works("id", "p1"), fails("crash", "id", "p3"));
        tool("histogram", "id:string", args -> new int[photo(args).iso() - 201].length, fails("crash", "id", "p1"));
        tool("caption_words", "text:string", args -> Pattern.compile("caption(").split((String) args.get("text")).length, fails("crash", "text", "a b"));
        tool("raw_preview", "id:string", args -> ByteBuffer.wrap(new byte[6]).getLong(), fails("crash", "id", "p1"));
        tool("camera_profile", "id:string", args -> Class.forName("org.gallery.profiles." + photo(args).camera()).getName(), fails("misconfig", "id", "p1"));
        tool("face_model", "id:string", args -> {
            System.loadLibrary("opencv_java490");
            return "loaded";
        }, fails("misconfig", "id", "p1"), fails("misconfig", "id", "p2"));
        tool("restore_index", "name:string", args -> {
            try (ObjectInputStream in = new ObjectInputStream(Files.newInputStream(HOME.resolve("index.ser")))) { return in.readObject(); }
        }, fails("misconfig", "name", "latest"));
        tool("captions", "language:string", args -> Files.readString(HOME.resolve("captions.txt")), fails("misconfig", "language", "de"), fails("misconfig", "language", "en"));
        tool("thumbnail", "id:string", args -> new GZIPInputStream(Files.newInputStream(HOME.resolve("thumbs.gz"))).readAllBytes().length, fails("misconfig", "id", "p1"));
        tool("sidecar", "id:string", args -> DocumentBuilderFactory.newInstance().newDocumentBuilder().parse(HOME.resolve("sidecar.xmp").toFile()).getDocumentElement().getTagName(), fails("misconfig", "id", "p1"));
        tool("dimensions", "id:string", args -> {
            var image = ImageIO.read(HOME.resolve("p1.jpg").toFile());
            if (image == null) throw new IOException("p1.jpg: unsupported or damaged image data");
            return image.getWidth();
        }, fails("misconfig", "id", "p1"));
        tool("export_quality", "id:string", args -> Json.parse(Files.readString(HOME.resolve("settings.json"))), fails("misconfig", "id", "p1"));
        tool("preview", "id:string", args -> Files.readAllBytes(HOME.resolve("previews/" + photo(args).camera() + ".webp")).length, fails("misconfig", "id", "p1"), fails("misconfig", "id", "p2"));
        tool("color_profile", "id:string", args -> {
            if (!Files.exists(Path.of("/usr/share/color/icc/AdobeRGB1998.icc"))) throw new FileNotFoundException("AdobeRGB1998.icc");
            return "AdobeRGB";
        }, fails("misconfig", "id", "p1"));
        tool("exif", "id:string", args -> new ProcessBuilder("exiftool", "-j", "p1.jpg").start().waitFor(), fails("misconfig", "id", "p1"), fails("misconfig", "id", "p2"));
        tool("convert", "id:string format:string", args -> {
            int code = new ProcessBuilder("sh", "-c", "magick p1.jpg p1." + args.get("format") + " 2>/dev/null").start().waitFor();
            if (code != 0) throw new IOException("magick terminated with exit value " + code);
            return "converted";
        }, fails("misconfig", "id", "p1", "format", "png"));
        tool("resize", "id:string width:number", args -> new ProcessBuilder("./album/resize.sh").start().waitFor(), fails("misconfig", "id", "p1", "width", 800));
        tool("catalog_query", "text:string", args -> DriverManager.getConnection("jdbc:h2:./catalog").getCatalog(), fails("misconfig", "text", "sea"));
        tool("publish", "id:string", args -> Objects.requireNonNull(System.getenv("GALLERY_TOKEN"), "GALLERY_TOKEN must be set"), fails("misconfig", "id", "p1"));
        tool("share_link", "id:string", args -> System.getenv("PUBLIC_URL").concat("/p1"), fails("misconfig", "id", "p1"));
        tool("export_album", "album:string", args -> {
            try (OutputStream out = Files.newOutputStream(HOME.resolve("export.zip"))) { out.write(new byte[4096]); }
            return "exported";
        }, fails("internal", "album", "summer"), fails("internal", "album", "winter"));
        tool("save_rating", "id:string stars:number", args -> Files.writeString(HOME.resolve("ratings"), "5"), fails("misconfig", "id", "p1", "stars", 5));
        tool("rescan", "album:string", args -> {
            ReentrantLock lock = new ReentrantLock();
            Thread other = new Thread(lock::lock);
            other.start();
            other.join();
            if (!lock.tryLock(150, TimeUnit.MILLISECONDS)) throw new TimeoutException("catalog lock was not released by Thread-0");
            return "scanned";
        }, fails("internal", "album", "summer"));

        tool("geocode", "id:string", args -> {
            photo(args);
            return get(Map.of("p1", "200", "p2", "500", "p3", "502").get((String) args.get("id")));
        }, works("id", "p1"), fails("upstream", "id", "p2"), fails("upstream", "id", "p3"));
        tool("similar_images", "id:string", args -> get("slow"), fails("timeout", "id", "p1"), fails("timeout", "id", "p2"));
        tool("stock_price", "id:string", args -> get("http://127.0.0.1:" + CLOSED_PORT + "/price"), fails("network", "id", "p1"), fails("network", "id", "p2"));
        tool("backup", "album:string", args -> new Socket("backup.gallery.invalid", 443).isConnected(), fails("network", "album", "summer"));
        tool("cloud_sync", "album:string", args -> get(UPSTREAM.replace("http:", "https:") + "/sync"), fails("network", "album", "summer"));
        tool("print_order", "id:string", args -> {
            try {
                return get("reset");
            } catch (IOException e) {
                throw new RuntimeException("Print service dropped the connection", e);
            }
        }, fails("network", "id", "p1"));
        tool("auto_tags", "id:string", args -> Json.parse(get("html")), fails("upstream", "id", "p1"));
        tool("license", "id:string", args -> {
            String path = Map.of("p1", "429", "p2", "401").get((String) args.get("id"));
            try {
                return get(path);
            } catch (IOException e) {
                throw new IOException(path.equals("429") ? "License API: quota for today used up" : "License API: HTTP 401, key not accepted", e);
            }
        }, fails("quota", "id", "p1"), fails("auth", "id", "p2"));
        tool("face_search", "name:string", args -> {
            try (SocketChannel channel = SocketChannel.open(new InetSocketAddress("127.0.0.1", CLOSED_PORT))) { return channel.isOpen(); }
            catch (ConnectException e) { throw new IllegalStateException("Face index service is down, results are not available at the moment"); }
        }, fails("down", "name", "anna"), fails("down", "name", "ben"));

        tool("create_album", "name:string", args -> {
            String name = (String) args.get("name");
            if (name == null || name.isBlank()) throw new BadRequest("name must not be blank");
            if (name.equals("summer")) throw new BadRequest("Album summer exists");
            if (name.startsWith(".")) throw new SecurityException("Hidden albums cannot be created by guests");
            if (name.length() > 12) throw new BadRequest("name: length must be between 1 and 12");
            return "created " + name;
        }, works("name", "winter"), fails("validation", "name", " "), fails("conflict", "name", "summer"), fails("permission", "name", ".private"), fails("validation", "name", "a name that is far too long"));
        tool("delete_photo", "id:string", args -> {
            photo(args);
            if (args.get("id").equals("p2")) throw new BadRequest("p2 is part of a published album; unpublish the album before deleting");
            return "deleted";
        }, works("id", "p1"), fails("state", "id", "p2"), fails("not_found", "id", "x"));
        tool("filter", "query:string", args -> {
            try {
                Pattern pattern = Pattern.compile((String) args.get("query"));
                List<String> found = PHOTOS.keySet().stream().filter(id -> pattern.matcher(id).find()).toList();
                return found.isEmpty() ? "0 photos" : found;
            } catch (PatternSyntaxException e) {
                throw new BadRequest("Invalid query: " + e.getDescription());
            }
        }, works("query", "p[12]"), works("query", "q"), fails("payload", "query", "p[1"));
        tool("set_date", "id:string date:string", args -> LocalDate.parse((String) args.get("date")), works("id", "p1", "date", "2026-07-02"), fails("validation", "id", "p1", "date", "2 July"));
        tool("save_as", "id:string format:string", args -> {
            if (!args.get("format").equals("png")) throw new UnsupportedOperationException("Writing " + args.get("format") + " is not supported");
            return "saved";
        }, works("id", "p1", "format", "png"), fails("unsupported", "id", "p1", "format", "heic"));

        tool("keywords", "id:string", args -> {
            try {
                return String.join(", ", photo(args).tags());
            } catch (BadRequest e) {
                return "Error: " + e.getMessage();
            } catch (Exception e) {
                return "Error: " + e;
            }
        }, works("id", "p1"), hides("crash", "id", "p2"), hides("not_found", "id", "p7"));
        tool("weather_at", "id:string", args -> {
            if (args.get("id").equals("p1")) return map("success", true, "data", "sunny", "error", null);
            try {
                return get(args.get("id").equals("p2") ? "503" : "http://127.0.0.1:" + CLOSED_PORT);
            } catch (IOException e) {
                return map("success", false, "data", null, "error", e.getMessage() == null ? e.toString() : e.getMessage());
            }
        }, works("id", "p1"), hides("upstream", "id", "p2"), hides("network", "id", "p3"));
        tool("describe", "id:string", args -> {
            try {
                return new ProcessBuilder("llava-cli").start().waitFor();
            } catch (IOException e) {
                return "Description could not be generated: " + e.getMessage();
            }
        }, hides("misconfig", "id", "p1"));
        tool("verify_copyright", "id:string", args -> map("verified", args.get("id").equals("p1"), "problems", args.get("id").equals("p1") ? List.of() : List.of("no copyright notice")), works("id", "p1"), works("id", "p2"));
        tool("import_log", "day:string", args -> "IMG_1: ok\nIMG_2: java.io.EOFException, skipped\n2 files read, 1 error", works("day", "2026-07-02"));
        Map<String, Object> unknown = fails("unknown", "id", "p1");
        unknown.put("tool", "sharpen");
        PLAN.add(unknown);
    }

    static Object answer(String method, Map<String, Object> params) {
        switch (method) {
            case "initialize":
                return map("protocolVersion", params.get("protocolVersion"), "capabilities", map("tools", map()), "serverInfo", map("name", "gallery", "version", "1.2.0"));
            case "tools/list":
                List<Object> tools = new ArrayList<>();
                for (Tool tool : TOOLS.values()) {
                    Map<String, Object> properties = map();
                    tool.parameters().forEach((name, type) -> properties.put(name, map("type", type)));
                    tools.add(map("name", tool.name(), "inputSchema", map("type", "object", "properties", properties, "required", List.copyOf(properties.keySet()))));
                }
                return map("tools", tools);
            case "tools/call":
                break;
            default:
                throw new NoSuchElementException("Method not found: " + method);
        }
        Tool tool = TOOLS.get((String) params.get("name"));
        if (tool == null) throw new NoSuchElementException("Tool not found: " + params.get("name"));
        try {
            @SuppressWarnings("unchecked")
            Object value = tool.handler().run((Map<String, Object>) params.get("arguments"));
            return map("content", List.of(map("type", "text", "text", value instanceof Map ? Json.write(value) : String.valueOf(value))));
        } catch (Throwable e) {
            if (!(e instanceof BadRequest)) e.printStackTrace();
            String text = e.getMessage() == null ? e.getClass().getName() : e.getMessage();
            return map("content", List.of(map("type", "text", "text", text)), "isError", true);
        }
    }

    public static void main(String[] arguments) throws Exception {
        prepare();
        define();
        if (arguments[arguments.length - 1].equals("--plan")) {
            System.out.println(Json.write(PLAN));
            return;
        }
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            @SuppressWarnings("unchecked")
            Map<String, Object> request = (Map<String, Object>) Json.parse(line);
            if (!request.containsKey("id")) continue;
            Map<String, Object> reply = map("jsonrpc", "2.0", "id", request.get("id"));
            try {
                @SuppressWarnings("unchecked")
                Map<String, Object> params = (Map<String, Object>) request.getOrDefault("params", map());
                reply.put("result", answer((String) request.get("method"), params));
            } catch (NoSuchElementException e) {
                reply.put("error", map("code", -32601, "message", e.getMessage()));
            }
            out.println(Json.write(reply));
        }
        System.exit(0);
    }

    /** As much JSON as the server needs. */
    static class Json {
        final String text;
        int at;

        Json(String text) { this.text = text; }

        static Object parse(String text) {
            Json json = new Json(text);
            return json.value();
        }

        char next() {
            while (at < text.length() && Character.isWhitespace(text.charAt(at))) at++;
            if (at >= text.length()) throw new IllegalArgumentException("Unexpected end of JSON at position " + at);
            return text.charAt(at);
        }

        Object value() {
            char c = next();
            if (c == '{') {
                Map<String, Object> result = map();
                at++;
                while (next() != '}') {
                    String key = string();
                    if (next() != ':') throw new IllegalArgumentException("Expected ':' at position " + at);
                    at++;
                    result.put(key, value());
                    if (next() == ',') at++;
                }
                at++;
                return result;
            }
            if (c == '[') {
                List<Object> result = new ArrayList<>();
                at++;
                while (next() != ']') {
                    result.add(value());
                    if (next() == ',') at++;
                }
                at++;
                return result;
            }
            if (c == '"') return string();
            Matcher literal = Pattern.compile("true|false|null|-?[0-9.eE+-]+").matcher(text).region(at, text.length());
            if (!literal.lookingAt()) throw new IllegalArgumentException("Unrecognized token at position " + at + ": '" + text.substring(at, Math.min(at + 9, text.length())) + "'");
            at = literal.end();
            return switch (literal.group()) {
                case "true" -> true;
                case "false" -> false;
                case "null" -> null;
                default -> literal.group().matches("-?[0-9]+") ? (Object) Long.valueOf(literal.group()) : (Object) Double.valueOf(literal.group());
            };
        }

        String string() {
            if (next() != '"') throw new IllegalArgumentException("Expected '\"' at position " + at);
            StringBuilder result = new StringBuilder();
            for (at++; text.charAt(at) != '"'; at++) {
                char c = text.charAt(at);
                if (c != '\\') { result.append(c); continue; }
                char escaped = text.charAt(++at);
                if (escaped == 'u') {
                    result.append((char) Integer.parseInt(text.substring(at + 1, at + 5), 16));
                    at += 4;
                } else {
                    int index = "bfnrt".indexOf(escaped);
                    result.append(index < 0 ? escaped : "\b\f\n\r\t".charAt(index));
                }
            }
            at++;
            return result.toString();
        }

        static String write(Object value) {
            if (value instanceof Map<?, ?> map) return map.entrySet().stream().map(each -> write(each.getKey()) + ":" + write(each.getValue())).collect(Collectors.joining(",", "{", "}"));
            if (value instanceof Collection<?> list) return list.stream().map(Json::write).collect(Collectors.joining(",", "[", "]"));
            if (value instanceof String text) {
                StringBuilder result = new StringBuilder("\"");
                for (char c : text.toCharArray()) result.append(c == '"' || c == '\\' ? "\\" + c : c < 32 ? String.format("\\u%04x", (int) c) : String.valueOf(c));
                return result.append('"').toString();
            }
            return String.valueOf(value);
        }
    }
}
