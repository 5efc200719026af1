// A bulk sender and its receiver on ngtcp2: `send ADDRESS PORT SECONDS CONTROL GSO [qlog]` and `receive PORT`.
//
// ngtcp2 has no sockets and no timers. With GSO one call sends what ngtcp2 calls a send quantum; without, every packet
// leaves by itself, when ngtcp2's pacer says so.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <ngtcp2/ngtcp2.h>
#include <ngtcp2/ngtcp2_crypto.h>
#include <ngtcp2/ngtcp2_crypto_boringssl.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include "certificate.h"

#define SECOND_NS 1000000000ull
// More than the largest path holds, so that no flow-control window bounds what congestion control allows.
#define WINDOW_BYTES (64 << 20)
// A run fails if a program prints more than 16 MiB.
#define MOST_QLOG_BYTES (15 << 20)
#define CHECK(ok, what)                                                                            \
	do {                                                                                       \
		if (!(ok)) {                                                                       \
			fprintf(stderr, "%s failed\n", what);                                      \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

struct link {
	int socket;
	bool sends, gso;
	ngtcp2_path_storage path;
	ngtcp2_conn *connection;
	ngtcp2_crypto_conn_ref reference;
	int64_t stream;
	uint64_t written_bytes, received_bytes;
	char *qlog; // NULL: none is wanted
	size_t qlog_bytes, qlog_records;
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * SECOND_NS + now.tv_nsec;
}

static ngtcp2_conn *connection_of(ngtcp2_crypto_conn_ref *reference)
{
	return ((struct link *)reference->user_data)->connection;
}

static void fill_random(uint8_t *bytes, size_t size, const ngtcp2_rand_ctx *context)
{
	(void)context;
	CHECK(getrandom(bytes, size, 0) == (ssize_t)size, "getrandom");
}

static int new_connection_id(ngtcp2_conn *connection, ngtcp2_cid *id,
			     ngtcp2_stateless_reset_token *token, size_t size, void *data)
{
	(void)connection;
	(void)data;
	fill_random(id->data, size, NULL);
	id->datalen = size;
	fill_random((uint8_t *)token, sizeof(*token), NULL);
	return 0;
}

static int read_stream(ngtcp2_conn *connection, uint32_t flags, int64_t stream, uint64_t offset,
		       const uint8_t *bytes, size_t size, void *data, void *of_stream)
{
	(void)flags;
	(void)offset;
	(void)bytes;
	(void)of_stream;
	((struct link *)data)->received_bytes += size;
	ngtcp2_conn_extend_max_stream_offset(connection, stream, size);
	ngtcp2_conn_extend_max_offset(connection, size);
	return 0;
}

static const ngtcp2_callbacks CALLBACKS = {
    .client_initial = ngtcp2_crypto_client_initial_cb,
    .recv_client_initial = ngtcp2_crypto_recv_client_initial_cb,
    .recv_crypto_data = ngtcp2_crypto_recv_crypto_data_cb,
    .encrypt = ngtcp2_crypto_encrypt_cb,
    .decrypt = ngtcp2_crypto_decrypt_cb,
    .hp_mask = ngtcp2_crypto_hp_mask_cb,
    .recv_stream_data = read_stream,
    .recv_retry = ngtcp2_crypto_recv_retry_cb,
    .rand = fill_random,
    .update_key = ngtcp2_crypto_update_key_cb,
    .delete_crypto_aead_ctx = ngtcp2_crypto_delete_crypto_aead_ctx_cb,
    .delete_crypto_cipher_ctx = ngtcp2_crypto_delete_crypto_cipher_ctx_cb,
    .version_negotiation = ngtcp2_crypto_version_negotiation_cb,
    .get_new_connection_id2 = new_connection_id,
    .get_path_challenge_data2 = ngtcp2_crypto_get_path_challenge_data2_cb,
};

static int take_first(SSL *tls, const uint8_t **name, uint8_t *size, const uint8_t *offered,
		      unsigned int offered_size, void *data)
{
	(void)tls;
	(void)offered_size;
	(void)data;
	*size = offered[0];
	*name = offered + 1;
	return SSL_TLSEXT_ERR_OK;
}

// Keeps qlog until the end, since a write during the run would cost CPU time: its head, the first event, all metrics.
static void keep_qlog(void *data, uint32_t flags, const void *record, size_t size)
{
	struct link *link = data;

	(void)flags;
	if (link->qlog_records++ >= 2 && !memmem(record, size, "metrics_updated", 15))
		return;
	if (link->qlog_bytes + size > MOST_QLOG_BYTES)
		return;
	memcpy(link->qlog + link->qlog_bytes, record, size);
	link->qlog_bytes += size;
}

static SSL *new_tls(struct link *link)
{
	static const uint8_t application[] = "\4bulk";
	SSL_CTX *context = SSL_CTX_new(TLS_method());
	SSL *tls;

	if (link->sends) {
		CHECK(ngtcp2_crypto_boringssl_configure_client_context(context) == 0, "TLS");
	} else {
		BIO *certificate = BIO_new_mem_buf(CERTIFICATE, -1),
		    *key = BIO_new_mem_buf(KEY, -1);

		CHECK(ngtcp2_crypto_boringssl_configure_server_context(context) == 0, "TLS");
		SSL_CTX_use_certificate(context, PEM_read_bio_X509(certificate, NULL, NULL, NULL));
		SSL_CTX_use_PrivateKey(context, PEM_read_bio_PrivateKey(key, NULL, NULL, NULL));
		SSL_CTX_set_alpn_select_cb(context, take_first, NULL);
	}
	tls = SSL_new(context);
	link->reference = (ngtcp2_crypto_conn_ref){connection_of, link};
	SSL_set_app_data(tls, &link->reference);
	SSL_set_alpn_protos(tls, application, sizeof(application) - 1);
	if (link->sends) {
		SSL_set_tlsext_host_name(tls, "localhost");
		SSL_set_connect_state(tls);
	} else {
		SSL_set_accept_state(tls);
	}
	return tls;
}

// Both ends are alike but for who begins; `initial` is the first packet's header, at the receiver.
static void connect_both(struct link *link, struct sockaddr_in far, ngtcp2_cc_algo control,
			 const ngtcp2_pkt_hd *initial)
{
	ngtcp2_settings settings;
	ngtcp2_transport_params parameters;
	ngtcp2_cid theirs = {.datalen = 16}, ours = {.datalen = 16};
	struct sockaddr_in near;
	socklen_t size = sizeof(near);
	int status;

	getsockname(link->socket, (struct sockaddr *)&near, &size);
	ngtcp2_path_storage_init(&link->path, (struct sockaddr *)&near, size,
				 (struct sockaddr *)&far, size, NULL);
	ngtcp2_settings_default(&settings);
	settings.initial_ts = now_ns();
	settings.cc_algo = control;
	settings.qlog_write = link->qlog ? keep_qlog : NULL;
	settings.max_window = settings.max_stream_window = WINDOW_BYTES;
	ngtcp2_transport_params_default(&parameters);
	parameters.initial_max_data = parameters.initial_max_stream_data_uni = WINDOW_BYTES;
	parameters.initial_max_streams_uni = 1;
	fill_random(ours.data, ours.datalen, NULL);
	if (initial) {
		parameters.original_dcid = initial->dcid;
		parameters.original_dcid_present = 1;
		status = ngtcp2_conn_server_new(&link->connection, &initial->scid, &ours,
						&link->path.path, initial->version, &CALLBACKS,
						&settings, &parameters, NULL, link);
	} else {
		fill_random(theirs.data, theirs.datalen, NULL);
		status = ngtcp2_conn_client_new(&link->connection, &theirs, &ours, &link->path.path,
						NGTCP2_PROTO_VER_V1, &CALLBACKS, &settings,
						&parameters, NULL, link);
	}
	CHECK(status == 0, "a new connection");
	ngtcp2_conn_set_tls_native_handle(link->connection, new_tls(link));
}

// Writes one packet of whatever is to be sent.
static ngtcp2_ssize write_packet(ngtcp2_conn *connection, ngtcp2_path *path, ngtcp2_pkt_info *info,
				 uint8_t *packet, size_t size, ngtcp2_tstamp now, void *data)
{
	static uint8_t block[65536]; // acknowledged or not: all of it is zero for ever
	struct link *link = data;
	ngtcp2_vec part = {block, sizeof(block)};
	ngtcp2_ssize used = -1, bytes;

	bytes = ngtcp2_conn_writev_stream(connection, path, info, packet, size, &used, 0,
					  link->stream, &part, link->stream >= 0, now);
	if (bytes == NGTCP2_ERR_STREAM_DATA_BLOCKED)
		return ngtcp2_conn_write_pkt(connection, path, info, packet, size, now);
	if (used > 0)
		link->written_bytes += used;
	return bytes;
}

static void transmit(struct link *link, void *packets, size_t size, size_t segment)
{
	union {
		char room[CMSG_SPACE(sizeof(uint16_t))];
		struct cmsghdr aligned;
	} control = {0};
	struct iovec part = {packets, size};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (!link->sends) { // not connected, it does not learn that the sender has gone
		message.msg_name = link->path.path.remote.addr;
		message.msg_namelen = link->path.path.remote.addrlen;
	}
	if (size > segment) {
		struct cmsghdr *header = &control.aligned;

		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		header->cmsg_level = SOL_UDP;
		header->cmsg_type = UDP_SEGMENT;
		header->cmsg_len = CMSG_LEN(sizeof(uint16_t));
		*(uint16_t *)CMSG_DATA(header) = segment;
	}
	CHECK(sendmsg(link->socket, &message, 0) >= 0, "sendmsg");
}

// Sends what may leave, waits until something happens, but not beyond `end`, and receives what has come.
static bool turn(struct link *link, uint64_t end)
{
	static uint8_t packets[65536];
	struct pollfd waiting = {.fd = link->socket, .events = POLLIN};
	uint64_t now = now_ns(), until;
	struct timespec time;
	ngtcp2_pkt_info info;
	ngtcp2_ssize size;
	size_t segment;
	int status = 0;

	if (link->sends && link->stream < 0 &&
	    ngtcp2_conn_get_handshake_completed(link->connection))
		ngtcp2_conn_open_uni_stream(link->connection, &link->stream, NULL);
	for (;;) {
		size_t quantum = ngtcp2_conn_get_send_quantum2(link->connection);

		if (quantum > sizeof(packets))
			quantum = sizeof(packets);
		size = ngtcp2_conn_write_aggregate_pkt2(link->connection, &link->path.path, &info,
							packets, quantum, &segment, write_packet,
							link->gso ? 0 : 1, now);
		ngtcp2_conn_update_pkt_tx_time(link->connection, now);
		if (size <= 0)
			break;
		transmit(link, packets, size, segment);
		now = now_ns();
	}
	CHECK(size == 0, "ngtcp2_conn_write_aggregate_pkt2");
	until = ngtcp2_conn_get_expiry2(link->connection);
	until = until < end ? until : end;
	now = now_ns();
	until = until > now ? until - now : 0;
	time = (struct timespec){until / SECOND_NS, until % SECOND_NS};
	ppoll(&waiting, 1, &time, NULL); // to the nanosecond: timeouts of sockets count in ticks
	while ((size = recv(link->socket, packets, sizeof(packets), MSG_DONTWAIT)) > 0 && !status) {
		info = (ngtcp2_pkt_info){0};
		status = ngtcp2_conn_read_pkt(link->connection, &link->path.path, &info, packets,
					      size, now_ns());
	}
	if (!status && ngtcp2_conn_get_expiry2(link->connection) <= now_ns())
		status = ngtcp2_conn_handle_expiry(link->connection, now_ns());
	if (status && status != NGTCP2_ERR_DRAINING)
		fprintf(stderr, "%s\n", ngtcp2_strerror(status));
	return !status;
}

static void close_connection(struct link *link)
{
	uint8_t packet[1500];
	ngtcp2_pkt_info info;
	ngtcp2_ccerr why;
	ngtcp2_ssize size;

	ngtcp2_ccerr_default(&why);
	size = ngtcp2_conn_write_connection_close(link->connection, &link->path.path, &info, packet,
						  sizeof(packet), &why, now_ns());
	if (size > 0)
		transmit(link, packet, size, size);
}

static int send_for(struct in_addr to, int port, double seconds, const char *control, bool gso,
		    bool qlog)
{
	struct sockaddr_in far = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = to};
	struct link link = {.sends = true, .gso = gso, .stream = -1};
	uint64_t end = now_ns() + seconds * SECOND_NS;
	ngtcp2_conn_info info;
	ngtcp2_cc_algo algorithm = NGTCP2_CC_ALGO_CUBIC;

	if (!strcmp(control, "bbr")) {
		algorithm = NGTCP2_CC_ALGO_BBR;
	} else if (!strcmp(control, "reno")) {
		algorithm = NGTCP2_CC_ALGO_RENO;
	} else if (strcmp(control, "cubic")) {
		fprintf(stderr, "ngtcp2 has no %s; it has bbr, cubic and reno\n", control);
		return 1;
	}
	link.qlog = qlog ? malloc(MOST_QLOG_BYTES) : NULL;
	link.socket = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(connect(link.socket, (struct sockaddr *)&far, sizeof(far)) == 0, "connect");
	connect_both(&link, far, algorithm, NULL);
	while (now_ns() < end)
		CHECK(turn(&link, end), "the connection");
	ngtcp2_conn_get_conn_info2(link.connection, &info);
	printf("written %llu bytes, sent %llu packets, lost %llu, cwnd %llu bytes, rtt %llu us\n",
	       (unsigned long long)link.written_bytes, (unsigned long long)info.pkt_sent,
	       (unsigned long long)info.pkt_lost, (unsigned long long)info.cwnd,
	       (unsigned long long)info.smoothed_rtt / 1000);
	fwrite(link.qlog, 1, link.qlog_bytes, stdout);
	close_connection(&link);
	return 0;
}

static int receive_at(int port)
{
	struct sockaddr_in near = {.sin_family = AF_INET, .sin_port = htons(port)}, far;
	struct link link = {.stream = -1};
	socklen_t size = sizeof(far);
	uint8_t packet[65536];
	ngtcp2_pkt_hd initial;
	ssize_t bytes;

	link.socket = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(bind(link.socket, (struct sockaddr *)&near, sizeof(near)) == 0, "bind");
	bytes =
	    recvfrom(link.socket, packet, sizeof(packet), MSG_PEEK, (struct sockaddr *)&far, &size);
	CHECK(bytes > 0 && ngtcp2_accept(&initial, packet, bytes) == 0, "the first packet");
	connect_both(&link, far, NGTCP2_CC_ALGO_CUBIC, &initial);
	while (turn(&link, now_ns() + 60 * SECOND_NS))
		;
	printf("received %llu bytes\n", (unsigned long long)link.received_bytes);
	return 0;
}

int bulk(int count, const char *const *words)
{
	struct in_addr to;

	if (count >= 7 && !strcmp(words[1], "send") && inet_aton(words[2], &to))
		return send_for(to, atoi(words[3]), atof(words[4]), words[5],
				!strcmp(words[6], "on"), count == 8);
	if (count == 3 && !strcmp(words[1], "receive"))
		return receive_at(atoi(words[2]));
	fprintf(stderr,
		"give: send ADDRESS PORT SECONDS CONTROL on|off [qlog], or: receive PORT\n");
	return 1;
}
