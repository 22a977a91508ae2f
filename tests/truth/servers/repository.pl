#!/usr/bin/perl
# Version control: JSON-RPC by hand in Perl. What a tool dies with becomes a result with isError, and
# what dies as a hash reference becomes a protocol error.

use strict;
use warnings;
use Compress::Zlib ();
use Cwd ();
use Encode ();
use HTTP::Tiny ();
use IO::Socket::INET ();
use JSON::PP ();
use List::Util qw(sum max first);
use Storable ();
use Time::Local ();

$| = 1;
binmode STDIN, ':raw';
binmode STDOUT, ':raw';
my $json = JSON::PP->new->utf8->canonical;
my $UPSTREAM = $ENV{UPSTREAM} // 'http://127.0.0.1:9';
my $CLOSED_PORT = $ENV{CLOSED_PORT} // 9;
my $BASE = Cwd::getcwd() . '/repos';
my (%tools, @plan, @order);

sub fails { my ($cause, %arguments) = @_; return { cause => $cause, outcome => 'error', arguments => {%arguments} } }
sub hides { my ($cause, %arguments) = @_; return { cause => $cause, outcome => 'hidden', arguments => {%arguments} } }
sub works { my (%arguments) = @_; return { cause => undef, outcome => 'ok', arguments => {%arguments} } }

sub tool {
    my ($name, $parameters, $run, @calls) = @_;
    $tools{$name} = { parameters => $parameters, run => $run };
    push @order, $name;
    push @plan, { tool => $name, %$_ } for @calls;
}

sub put {
    my ($name, $text) = @_;
    open my $file, '>:raw', "$BASE/$name" or die "$BASE/$name: $!";
    print {$file} $text;
    close $file;
}

mkdir $BASE;
mkdir "$BASE/hooks";
put('HEAD', "ref: refs/heads/main\n");
put('packed.z', "x\x9c broken pack");
put('commits.json', '[{"id": "a1", "parents": []}, {"id": "b2", "parents": ["a1"]');
put('authors.stor', "pst0\x05\x0b garbage");
put('blame.txt', "a1 anna 12\nb2 ben\n");
put('mailmap', "\xe4\xf6\xfc <a\@example.org>\n");
put('hooks/pre-commit', "#!/bin/sh\necho 'linter config is missing' >&2\nexit 2\n");
put('hooks/post-merge', "#!/bin/sh\nexit 0\n");
chmod 0755, "$BASE/hooks/pre-commit";
chmod 0644, "$BASE/hooks/post-merge";
unlink "$BASE/$_" for qw(reflog config.lock);
symlink '/dev/full', "$BASE/reflog";
symlink '/proc/sys/kernel/ostype', "$BASE/config.lock";

my %commits = (
    a1 => { message => 'Initial commit', author => { name => 'anna' }, parents => [], files => 3, time => 1700000000 },
    b2 => { message => 'Fix typo', author => undef, parents => ['a1'], files => 0, time => 1700003600 },
    c3 => { message => undef, author => 'ben', parents => 'b2', files => 'many', time => -1 },
    d4 => { message => 'Loop', author => { name => 'cleo' }, parents => ['d4'], files => 1, time => 1700009999 },
);

sub commit {
    my ($id) = @_;
    die "unknown revision '$id'\n" unless exists $commits{$id};
    return $commits{$id};
}

sub slurp {
    my ($name) = @_;
    open my $file, '<:raw', "$BASE/$name" or die "Can't open $name: $!";
    local $/;
    return <$file>;
}

my $http = HTTP::Tiny->new(timeout => 0.4);

tool('show', { rev => 'string' }, sub {
    my ($arg) = @_;
    die { code => -32602, message => 'rev: required' } unless defined $arg->{rev};
    die { code => -32602, message => 'rev: expected string, got ' . lc ref $arg->{rev} } if ref $arg->{rev};
    return commit($arg->{rev})->{message} // '(no message)';
}, works(rev => 'a1'), works(rev => 'b2'), fails('not_found', rev => 'ffff'), fails('validation'), fails('validation', rev => ['a1']));
tool('author', { rev => 'string' }, sub { return commit($_[0]{rev})->{author}->{name} . '' },
    works(rev => 'a1'), fails('crash', rev => 'c3'), works(rev => 'd4'));
tool('parents', { rev => 'string' }, sub { return join ' ', @{ commit($_[0]{rev})->{parents} } },
    works(rev => 'b2'), fails('crash', rev => 'c3'));
tool('lines_per_file', { rev => 'string' }, sub { return 120 / commit($_[0]{rev})->{files} },
    works(rev => 'a1'), fails('crash', rev => 'b2'));
tool('first_parent', { rev => 'string' }, sub { my $commit = commit($_[0]{rev}); return $commits{ $commit->{parents}[0] // '' }{message} || die },
    works(rev => 'b2'), fails('crash', rev => 'a1'));
tool('commit_date', { rev => 'string' }, sub {
    my $time = commit($_[0]{rev})->{time};
    return scalar gmtime Time::Local::timegm(0, 0, 0, $time < 0 ? 32 : 1, 0, 2024);
}, works(rev => 'a1'), fails('crash', rev => 'c3'));
tool('merge_base', { a => 'string', b => 'string' }, sub { return Graph::Walker->new(@_)->base }, fails('crash', a => 'a1', b => 'b2'), fails('crash', a => 'b2', b => 'a1'));
tool('rank', { rev => 'string' }, sub { my $ranks = { a1 => 1 }; return $ranks->[0] }, fails('crash', rev => 'a1'));
tool('compare', { a => 'string', b => 'string' }, sub { my $differ; return $differ->($_[0]{a}, $_[0]{b}) }, fails('crash', a => 'a1', b => 'b2'));
tool('churn', { days => 'number' }, sub { return stat_churn($_[0]{days}) }, fails('crash', days => 7));
tool('glob_files', { pattern => 'string' }, sub { my $prefix = 'src(main'; return join ' ', grep { /^$prefix/ } 'src/main.c' }, fails('crash', pattern => '*.c'));
tool('bisect', { good => 'string', bad => 'string' }, sub {
    my @between = grep { $_ gt $_[0]{good} && $_ lt $_[0]{bad} } sort keys %commits;
    die 'assertion failed' unless @between;
    return $between[ @between / 2 ];
}, works(good => 'a1', bad => 'c3'), fails('crash', good => 'a1', bad => 'b2'));
tool('changelog', { since => 'string' }, sub { my %args = (since => $_[0]{since}); return uc substr($args{since}, 0, 2) . join '', map { $_->{message} =~ s/\s+$//r } commit($_[0]{since}), undef->{next} },
    fails('crash', since => 'a1'));
tool('contributors', { limit => 'number' }, sub { my @names = sort map { $_->{author}{name} } values %commits; return "@names[0 .. $_[0]{limit}]" },
    fails('crash', limit => 2));
tool('log', { limit => 'number' }, sub { return $json->encode(JSON::PP->new->decode(slurp('commits.json'))) },
    fails('misconfig', limit => 5), fails('misconfig', limit => 10));
tool('pack_info', { pack => 'string' }, sub {
    my $data = Compress::Zlib::uncompress(slurp('packed.z'));
    die "pack is corrupt (inflate failed)\n" unless defined $data;
    return length $data;
}, fails('misconfig', pack => 'p1'));
tool('author_stats', { name => 'string' }, sub { return Storable::retrieve("$BASE/authors.stor")->{ $_[0]{name} } }, fails('misconfig', name => 'anna'));
tool('blame', { line => 'number' }, sub {
    my @row = split ' ', (split /\n/, slurp('blame.txt'))[ $_[0]{line} - 1 ];
    die "blame.txt: malformed record\n" if @row < 3;
    return $row[1];
}, works(line => 1), fails('misconfig', line => 2));
tool('mailmap', { name => 'string' }, sub { return Encode::decode('UTF-8', slurp('mailmap'), Encode::FB_CROAK) }, fails('misconfig', name => 'anna'));
tool('description', { repo => 'string' }, sub { return slurp('description') }, fails('misconfig', repo => 'site'), fails('misconfig', repo => 'docs'));
tool('commit_template', { repo => 'string' }, sub {
    open my $file, '<', '/usr/share/repository/templates/commit.txt' or die "commit.txt: template unavailable\n";
    return <$file>;
}, fails('misconfig', repo => 'site'));
tool('signers', { repo => 'string' }, sub { my $out = `signify-openbsd -C 2>&1`; die "signify: exit " . ($? >> 8) if $?; return $out }, fails('misconfig', repo => 'site'), fails('misconfig', repo => 'docs'));
tool('svn_log', { url => 'string' }, sub { system('svn', 'log', $_[0]{url}) == 0 or die "Failed to run svn: $!\n"; return 'log' }, fails('misconfig', url => 'svn://svn.example.org/trunk'));
tool('render_readme', { repo => 'string' }, sub { open my $pipe, '-|', 'pandoc', '-t', 'html', "$BASE/README.md" or die "pandoc: $!"; return join '', <$pipe> }, fails('misconfig', repo => 'site'));
tool('run_hook', { name => 'string' }, sub {
    my $out = `$BASE/hooks/$_[0]{name} 2>&1`;
    die sprintf "hook %s failed with status %d: %s", $_[0]{name}, $? >> 8, $out if $?;
    return 'passed';
}, fails('misconfig', name => 'pre-commit'), fails('misconfig', name => 'post-merge'));
tool('highlight', { file => 'string' }, sub { require Syntax::Highlight::Engine::Kate; return 1 }, fails('misconfig', file => 'a.c'), fails('misconfig', file => 'b.c'));
tool('push', { remote => 'string' }, sub { my $key = $ENV{DEPLOY_KEY} or die "no deploy key: DEPLOY_KEY is unset\n"; return $key }, fails('misconfig', remote => 'origin'));
tool('mirror', { remote => 'string' }, sub { return 'mirrored to ' . ($ENV{MIRROR_ROOT} || die 'MIRROR_ROOT') }, fails('misconfig', remote => 'origin'));
tool('append_reflog', { entry => 'string' }, sub {
    open my $file, '>', "$BASE/reflog" or die "reflog: $!";
    print {$file} $_[0]{entry};
    close $file or die "Could not write reflog: $!\n";
    return 'ok';
}, fails('internal', entry => 'reset'), fails('internal', entry => 'merge'));
tool('set_config', { key => 'string', value => 'string' }, sub {
    open my $file, '>', "$BASE/config.lock" or die "error: could not lock config file: $!\n";
    return 'set';
}, fails('misconfig', key => 'user.name', value => 'anna'));
tool('gc', { repo => 'string' }, sub {
    local $SIG{ALRM} = sub { die "gc: still waiting for the other process after 1 s\n" };
    alarm 1;
    select undef, undef, undef, 3;
    alarm 0;
    return 'ok';
}, fails('internal', repo => 'site'));
tool('reindex', { repo => 'string' }, sub { my $result = { indexed => 3, failed => sub { 1 } }; return $json->encode($result) }, fails('crash', repo => 'site'));

tool('pipeline', { ref => 'string' }, sub {
    my %path = (main => 200, dev => 500, next => 503, topic => 429, old => 401);
    my $reply = $http->get("$UPSTREAM/" . $path{ $_[0]{ref} });
    die "CI rejected our token (401)\n" if $reply->{status} == 401;
    die "CI: $reply->{status} $reply->{reason}\n" unless $reply->{success};
    return $reply->{content};
}, works(ref => 'main'), fails('upstream', ref => 'dev'), fails('upstream', ref => 'next'), fails('quota', ref => 'topic'), fails('auth', ref => 'old'));
tool('issue', { number => 'number' }, sub {
    my $reply = $http->get("http://127.0.0.1:$CLOSED_PORT/issues/$_[0]{number}");
    die "Tracker: $reply->{content}" if $reply->{status} == 599;
    return $reply->{content};
}, fails('network', number => 1), fails('network', number => 2));
tool('fetch_remote', { remote => 'string' }, sub {
    my $out = `git ls-remote http://git.repository.invalid/site.git 2>&1`;
    die $out if $?;
    return $out;
}, fails('network', remote => 'origin'));
tool('clone', { url => 'string' }, sub {
    my $reply = $http->get("$UPSTREAM/504");
    die "fatal: unable to access '$_[0]{url}': The requested URL returned error: $reply->{status}\n" unless $reply->{success};
    return $reply->{content};
}, fails('upstream', url => 'default'));
tool('webhook', { url => 'string' }, sub {
    IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $CLOSED_PORT, Timeout => 1) or die "webhook receiver: $@\n";
    return 'sent';
}, fails('network', url => 'build'), fails('network', url => 'chat'));
tool('review_status', { number => 'number' }, sub {
    my $reply = $http->get("$UPSTREAM/slow");
    die "review service: timed out\n" if $reply->{content} =~ /timed out/i;
    return $reply->{content};
}, fails('timeout', number => 3), fails('timeout', number => 4));
tool('coverage', { ref => 'string' }, sub { return $json->decode($http->get("$UPSTREAM/html")->{content})->{percent} }, fails('upstream', ref => 'main'));
tool('search_code', { query => 'string' }, sub {
    IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $CLOSED_PORT) or die { code => -32000, message => 'code search is not available: index daemon not running' };
    return 'found';
}, fails('down', query => 'main('), fails('down', query => 'TODO'));

tool('create_branch', { name => 'string', from => 'string' }, sub {
    my ($arg) = @_;
    die { code => -32602, message => 'name and from are required' } unless defined $arg->{name} && defined $arg->{from};
    die "fatal: a branch named '$arg->{name}' already exists\n" if $arg->{name} eq 'main';
    die "fatal: '$arg->{name}' is not a valid branch name\n" if $arg->{name} =~ /\s|\.\./;
    die "protected: branches below release/ are created by the release manager\n" if $arg->{name} =~ m{^release/};
    commit($arg->{from});
    return 'created';
}, works(name => 'topic', from => 'a1'), fails('conflict', name => 'main', from => 'a1'), fails('validation', name => 'my topic', from => 'a1'), fails('validation', name => 'topic'), fails('permission', name => 'release/2', from => 'a1'), fails('not_found', name => 'topic', from => 'zz'));
tool('merge', { branch => 'string' }, sub {
    my ($arg) = @_;
    die "You have unmerged paths; resolve them or abort the merge first\n" if $arg->{branch} eq 'dirty';
    die "CONFLICT (content): Merge conflict in README.md\nAutomatic merge failed\n" if $arg->{branch} eq 'diverged';
    die "octopus merges are not supported\n" if $arg->{branch} =~ / /;
    return 'merged';
}, works(branch => 'topic'), fails('state', branch => 'dirty'), fails('conflict', branch => 'diverged'), fails('unsupported', branch => 'a b'));
tool('grep', { pattern => 'string' }, sub {
    my $pattern = eval { qr/$_[0]{pattern}/ } or die "bad pattern: $@";
    return join("\n", grep { /$pattern/ } map { $_->{message} // () } values %commits) || 'no matches';
}, works(pattern => 'typo'), works(pattern => 'nothing'), fails('payload', pattern => 'typo['));

tool('diffstat', { rev => 'string' }, sub {
    my ($arg) = @_;
    my $text = eval { my $commit = commit($arg->{rev}); "$commit->{files} files by $commit->{author}->{name}" };
    return defined $text ? $text : "error: $@";
}, works(rev => 'a1'), hides('crash', rev => 'c3'), hides('not_found', rev => 'e5'));
tool('release_notes', { tag => 'string' }, sub {
    my ($arg) = @_;
    return $json->encode({ ok => JSON::PP::true, notes => 'Fixed errors' }) if $arg->{tag} eq 'v1';
    my $reply = $http->get($arg->{tag} eq 'v2' ? "$UPSTREAM/500" : "http://127.0.0.1:$CLOSED_PORT/");
    return $json->encode({ ok => JSON::PP::false, error => "HTTP $reply->{status}: $reply->{reason}" });
}, works(tag => 'v1'), hides('upstream', tag => 'v2'), hides('network', tag => 'v3'));
tool('lint', { file => 'string' }, sub { my $out = `shellcheck -V 2>&1`; return $? ? "Could not run the linter: $out" : 'clean' }, hides('misconfig', file => 'a.sh'));
tool('check_message', { message => 'string' }, sub {
    my $long = length $_[0]{message} > 20;
    return $json->encode({ valid => $long ? JSON::PP::false : JSON::PP::true, violations => $long ? ['subject exceeds 20 characters'] : [] });
}, works(message => 'Fix typo'), works(message => 'Fix the error in the error handler'));
tool('ci_log', { job => 'number' }, sub { return "not ok 3 - parser\n# Failed test 'parser' at t/parser.t line 9.\nerror: 1 test failed" }, works(job => 3));
push @plan, { tool => 'force_push', %{ fails('unknown', remote => 'origin') } };

if (@ARGV && $ARGV[-1] eq '--plan') {
    print $json->encode(\@plan);
    exit;
}

sub answer {
    my ($method, $params) = @_;
    return { protocolVersion => $params->{protocolVersion}, capabilities => { tools => {} }, serverInfo => { name => 'repository', version => '3.1' } } if $method eq 'initialize';
    return {} if $method eq 'ping';
    if ($method eq 'tools/list') {
        return { tools => [ map { my $p = $tools{$_}{parameters}; { name => $_, inputSchema => { type => 'object', properties => { map { $_ => { type => $p->{$_} } } keys %$p }, required => [ sort keys %$p ] } } } @order ] };
    }
    die { code => -32601, message => "Method not found: $method" } unless $method eq 'tools/call';
    my $tool = $tools{ $params->{name} } or die { code => -32602, message => "No such tool: $params->{name}" };
    my $text = eval { $tool->{run}->($params->{arguments} || {}) };
    if (my $error = $@) {
        die $error if ref $error;
        warn "$params->{name}: $error";
        chomp $error;
        return { content => [ { type => 'text', text => $error } ], isError => JSON::PP::true };
    }
    return { content => [ { type => 'text', text => "$text" } ] };
}

while (my $line = <STDIN>) {
    my $request = $json->decode($line);
    next unless exists $request->{id};
    my $result = eval { answer($request->{method}, $request->{params}) };
    my $error = $@;
    my $body = $result ? { result => $result } : { error => ref $error ? $error : { code => -32603, message => "Internal error: $error" } };
    print $json->encode({ jsonrpc => '2.0', id => $request->{id}, %$body }), "\n";
}
