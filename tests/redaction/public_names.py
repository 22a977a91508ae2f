"""Names of settings and arguments that other people chose, with their values.

The names come from public files, which are cited; no file is copied. Values of secrets are made up
when the corpus runs; the values of plain names are those of the files or of their documentation.
`KEPT` sources were read after the rules were written and did not change them.
"""

from typing import Final, NamedTuple


class Source(NamedTuple):
    """A public file: names of secrets, and names of plain values with an example."""

    kind: str
    """`application`, `MCP server` or `MCP tool`."""
    secrets: str
    plain: dict[str, str]


USED: Final[dict[str, Source]] = {
    "langgenius/dify docker/.env.example": Source(
        "application",
        "SECRET_KEY INIT_PASSWORD DB_PASSWORD REDIS_PASSWORD REDIS_SENTINEL_PASSWORD"
        " REDIS_CLUSTERS_PASSWORD CELERY_SENTINEL_PASSWORD",
        {"ACCESS_TOKEN_EXPIRE_MINUTES": "60", "REFRESH_TOKEN_EXPIRE_DAYS": "30",
         "REDIS_SSL_KEYFILE": "/etc/redis/key.pem", "SERVER_WORKER_CLASS": "gevent",
         "CELERY_SENTINEL_MASTER_NAME": "mymaster", "COOKIE_DOMAIN": "example.com"},
    ),
    "danny-avila/LibreChat .env.example": Source(
        "application",
        "ANTHROPIC_API_KEY AZURE_API_KEY BINGAI_TOKEN CHATGPT_TOKEN GOOGLE_KEY OPENAI_API_KEY"
        " ASSISTANTS_API_KEY OPENROUTER_API_KEY CREDS_KEY DALLE_API_KEY SERPAPI_API_KEY"
        " ZAPIER_NLA_API_KEY MEILI_MASTER_KEY OPENAI_MODERATION_API_KEY JWT_SECRET"
        " JWT_REFRESH_SECRET DISCORD_CLIENT_SECRET OPENID_SESSION_SECRET EMAIL_PASSWORD"
        " E2E_USER_PASSWORD",
        {"REFRESH_TOKEN_EXPIRY": "604800000", "OPENID_SCOPE": "openid profile email",
         "AZURE_OPENAI_API_INSTANCE_NAME": "instance1", "GOOGLE_KEY": "user_provided",
         "BINGAI_TOKEN": "user_provided", "EMAIL_ENCRYPTION_HOSTNAME": "mail.example.org",
         "FIREBASE_AUTH_DOMAIN": "app-1234.firebaseapp.com"},
    ),
    "calcom/cal.com .env.example": Source(
        "application",
        "CALCOM_LICENSE_KEY NEXTAUTH_SECRET CRON_API_KEY CALENDSO_ENCRYPTION_KEY"
        " NEXT_PUBLIC_ZENDESK_KEY NEXT_PUBLIC_HELPSCOUT_KEY SENDGRID_API_KEY TWILIO_TOKEN"
        " STRIPE_WEBHOOK_SECRET EMAIL_SERVER_PASSWORD",
        {"API_KEY_PREFIX": "cal_", "NEXTAUTH_COOKIE_DOMAIN": ".example.com",
         "EMAIL_SERVER_PASSWORD": "<office365_password>"},
    ),
    "supabase/supabase docker/.env.example": Source(
        "application",
        "POSTGRES_PASSWORD JWT_SECRET ANON_KEY SERVICE_ROLE_KEY DASHBOARD_PASSWORD SECRET_KEY_BASE"
        " VAULT_ENC_KEY PG_META_CRYPTO_KEY LOGFLARE_PRIVATE_ACCESS_TOKEN"
        " S3_PROTOCOL_ACCESS_KEY_SECRET SMTP_PASS GOOGLE_SECRET SMS_TWILIO_AUTH_TOKEN"
        " MINIO_ROOT_PASSWORD",
        {"JWT_EXPIRY": "3600", "FUNCTIONS_VERIFY_JWT": "false",
         "POSTGRES_PASSWORD": "your-super-secret-and-long-postgres-password",
         "VAULT_ENC_KEY": "your-32-character-encryption-key"},
    ),
    "laravel/laravel .env.example": Source(
        "application",
        "APP_KEY DB_PASSWORD REDIS_PASSWORD MAIL_PASSWORD AWS_SECRET_ACCESS_KEY PUSHER_APP_KEY"
        " PUSHER_APP_SECRET",
        {"REDIS_PASSWORD": "null", "VITE_PUSHER_APP_KEY": "${PUSHER_APP_KEY}",
         "SESSION_DRIVER": "cookie"},
    ),
    "sooperset/mcp-atlassian .env.example": Source(
        "MCP server",
        "JIRA_API_TOKEN CONFLUENCE_API_TOKEN JIRA_PERSONAL_TOKEN CONFLUENCE_PERSONAL_TOKEN"
        " ATLASSIAN_OAUTH_CLIENT_SECRET ATLASSIAN_OAUTH_ACCESS_TOKEN JIRA_CLIENT_KEY_PASSWORD",
        {"JIRA_CLIENT_KEY": "/path/to/jira-client-key.pem", "IGNORE_HEADER_AUTH": "true",
         "JIRA_API_TOKEN": "your_jira_api_token_here", "JIRA_PROJECTS_FILTER": "PROJ,DEVOPS",
         "ATLASSIAN_OAUTH_ALLOWED_GRANT_TYPES": "authorization_code,refresh_token"},
    ),
    "sooperset/mcp-atlassian servers/jira.py": Source(
        "MCP tool",
        "",
        {"project_key": "DT", "issue_key": "PROJ-123", "epic_key": "PROJ-50", "user_key": "JIRA1"},
    ),
}  # fmt: skip
"""Sources that were read before the rules were written."""

KEPT: Final[dict[str, Source]] = {
    "mastodon/mastodon .env.production.sample": Source(
        "application",
        "DB_PASS ES_PASS SECRET_KEY_BASE OTP_SECRET VAPID_PRIVATE_KEY SMTP_PASSWORD"
        " AWS_SECRET_ACCESS_KEY",
        {"VAPID_PUBLIC_KEY": "BNbxGYNMhEIi9zrneh7mqV4oUanjLUK3m-mYZBc62frMKrEoMk88r3Lk",
         "SESSION_RETENTION_PERIOD": "31556952", "SMTP_LOGIN": "postmaster"},
    ),
    "langfuse/langfuse .env.prod.example": Source(
        "application",
        "NEXTAUTH_SECRET ENCRYPTION_KEY AUTH_GOOGLE_CLIENT_SECRET"
        " LANGFUSE_S3_BATCH_EXPORT_SECRET_ACCESS_KEY LANGFUSE_INIT_PROJECT_SECRET_KEY"
        " LANGFUSE_INIT_USER_PASSWORD NEXT_PUBLIC_POSTHOG_KEY SENTRY_AUTH_TOKEN"
        " TURNSTILE_SECRET_KEY ADMIN_API_KEY REDIS_AUTH STRIPE_SECRET_KEY"
        " STRIPE_WEBHOOK_SIGNING_SECRET CLICKHOUSE_PASSWORD",
        {"LANGFUSE_CACHE_API_KEY_TTL_SECONDS": "300", "AUTH_SESSION_MAX_AGE": "43200",
         "NEXT_PUBLIC_TURNSTILE_SITE_KEY": "0x4AAAAAAAC3DHQFLr1GavRN",
         "AUTH_CUSTOM_CLIENT_AUTH_METHOD": "client_secret_basic",
         "AUTH_DISABLE_USERNAME_PASSWORD": "true", "NEXTAUTH_COOKIE_DOMAIN": ".langfuse.com"},
    ),
    "documenso/documenso .env.example": Source(
        "application",
        "NEXT_PRIVATE_DOCUMENSO_LICENSE_KEY NEXTAUTH_SECRET NEXT_PRIVATE_ENCRYPTION_KEY"
        " NEXT_PRIVATE_ENCRYPTION_SECONDARY_KEY NEXT_PRIVATE_OIDC_CLIENT_SECRET"
        " NEXT_PRIVATE_SIGNING_PASSPHRASE NEXT_PRIVATE_UPLOAD_SECRET_ACCESS_KEY"
        " NEXT_PRIVATE_SMTP_PASSWORD NEXT_PRIVATE_SMTP_APIKEY NEXT_PRIVATE_RESEND_API_KEY"
        " NEXT_PRIVATE_MAILCHANNELS_DKIM_PRIVATE_KEY NEXT_PRIVATE_STRIPE_WEBHOOK_SECRET"
        " NEXT_PRIVATE_INNGEST_EVENT_KEY NEXT_PUBLIC_POSTHOG_KEY",
        {"NEXT_PRIVATE_SMTP_APIKEY_USER": "apikey", "NEXT_PRIVATE_SMTP_TRANSPORT": "smtp-auth",
         "NEXT_PRIVATE_SIGNING_GCLOUD_HSM_KEY_PATH": "projects/p/locations/l/keyRings/r"},
    ),
    "makeplane/plane .env.example": Source(
        "application",
        "PGPASSWORD EMAIL_HOST_PASSWORD AWS_SECRET_ACCESS_KEY OPENAI_API_KEY GITHUB_CLIENT_SECRET"
        " OIDC_CLIENT_SECRET DEFAULT_PASSWORD",
        {"OIDC_URL_TOKEN": "https://id.example.org/oauth/token", "EMAIL_USE_TLS": "1"},
    ),
    "formbricks/formbricks .env.example": Source(
        "application",
        "ENCRYPTION_KEY NEXTAUTH_SECRET SMTP_PASSWORD GITHUB_SECRET AZUREAD_CLIENT_SECRET"
        " CRON_SECRET STRIPE_SECRET_KEY GOOGLE_SHEETS_CLIENT_SECRET ENTERPRISE_LICENSE_KEY",
        {"PASSWORD_RESET_DISABLED": "1", "GITHUB_AUTH_ENABLED": "0"},
    ),
    "FlowiseAI/Flowise docker/.env.example": Source(
        "application",
        "DATABASE_PASSWORD SECRETKEY_AWS_SECRET_KEY S3_STORAGE_SECRET_ACCESS_KEY SMTP_PASSWORD"
        " JWT_AUTH_TOKEN_SECRET JWT_REFRESH_TOKEN_SECRET EXPRESS_SESSION_SECRET TOKEN_HASH_SECRET"
        " FLOWISE_EE_LICENSE_KEY REDIS_PASSWORD",
        {"SECRETKEY_PATH": "/root/.flowise", "SECRETKEY_STORAGE_TYPE": "local",
         "SECRETKEY_AWS_NAME": "FlowiseEncryptionKey", "JWT_TOKEN_EXPIRY_IN_MINUTES": "360",
         "PASSWORD_SALT_HASH_ROUNDS": "10", "EXPIRE_AUTH_TOKENS_ON_RESTART": "true",
         "GOOGLE_CLOUD_STORAGE_CREDENTIAL": "/the/keyfilename/path",
         "S3_STORAGE_SECRET_ACCESS_KEY": "<your-secret-key>"},
    ),
    "modelcontextprotocol/servers gitlab, and others' documented environments": Source(
        "MCP server",
        "GITLAB_PERSONAL_ACCESS_TOKEN GITHUB_PERSONAL_ACCESS_TOKEN NOTION_API_KEY TAVILY_API_KEY"
        " SUPABASE_ACCESS_TOKEN PERPLEXITY_API_KEY JINA_API_KEY MCP_API_KEY",
        {"GITLAB_PERSONAL_ACCESS_TOKEN": "${input:gitlab_token}", "DEFAULT_MINIMUM_TOKENS": "10000",
         "PERPLEXITY_API_KEY": "${input:perplexity-key}", "API_KEY": "${API_KEY}",
         "GITHUB_PERSONAL_ACCESS_TOKEN": "<YOUR_TOKEN>", "GITHUB_TOOLSETS": "repos,issues"},
    ),
    "schemas of servers for SonarQube, Bitbucket, Figma, Xray and brokers": Source(
        "MCP tool",
        "clientSecret",
        {"projectKey": "my-project", "repositoryKey": "billing-service", "profileKey": "desk-1",
         "fileKey": "aBcD1234efGh5678IJkl90", "jiraProjectKey": "CIBDX",
         "externalJiraProjectKey": "DATA_TEAM", "media_key": "3_1733456123456789012",
         "instrument_token": "738561", "invoiceFileKey": "loads/2026/inv-0042.pdf"},
    ),
}  # fmt: skip
"""Sources that were read afterwards."""

COMMANDS: Final[tuple[str, ...]] = (
    "curl --cacert ca.crt -u elastic:{} https://localhost:9200",
    "curl -k -X POST https://h.example/rest \\\n  -d 'world' \\\n  -u developer:{}",
    'curl -u ":{}" https://localhost:9200',
    "curl -sw '%{{http_code}}' -X POST --user 'johns:{}' $API_URL",
    "curl --user kevin:'{}' -iX PATCH",
    'curl -s --user "j.smith:{}" https://api.example/user/me',
    'curl -X POST --header "Api-Token: {}"',
    'curl -H "apikey: {}" -H "Accept: application/json"',
    "mysqldump -u root -p{} shop > dump.sql",
    "mariadb --user=app -p{} -h db",
    "sshpass -p '{}' ssh jo@h.example",
    "redis-cli -h cache -p 6380 -a {} ping",
    "redis-cli --pass {} ping",
    "mongosh -u admin -p {} --authenticationDatabase admin",
    "docker login -u jo -p {} registry.example",
    "machine api.example login jo password {}",
)  # fmt: skip
"""Commands from manuals and from gitleaks' tests; `{}` is the secret."""

HARMLESS_LINES: Final[tuple[str, ...]] = (
    "curl -i -u 'test:test'",
    'curl -sL --user "$1:$2" "$3" > "$4"',
    "curl -u <user:password> https://test.example/endpoint",
    "curl --user neo4j:[PASSWORD] http://[IP]:7474/db/data/",
    'curl -u "myusername" http://localhost:15130/api/check_user/',
    "curl -u username:token",
    'curl -u "${_username}:${_password}"',
    "curl --user '$USERNAME:$PASSWORD' $API_URL",
    'curl -XGET -i -u "${{ env.ELK_ID }}:${{ build.env.ELK_PASS }}"',
    'curl -X POST --user "$(cat ./login.txt):$(cat ./password.txt)"',
    'curl -H "Authorization: Bearer $API_KEY" https://h.example',
    'curl -H "Authorization: Bearer XXXXXXXXXXXX" https://h.example',
    "my_password = request.json_body['hey']",
    "my_password = foo(hey)you",
    "login(username=username, password=password)",
    "apiKey: this.apiKey,",
    "apiKey: fs.readFileSync('foo',",
    "password: ${link}",
    'open(self, password = ""):',
    'primaryKey="q8Rk2mZx91LpWv0TtYbN3cHd7JfGsA4e"',
    'foreignKey="q8Rk2mZx91LpWv0TtYbN3cHd7JfGsA4e"',
    'public_key = "9Cnzj4p4WGeKLs1Pt8QuKUpRKfFLfRYC9AIKjbJTWit"',
    "client_vpn_endpoint_id = aws_ec2_client_vpn_endpoint.client-vpn-endpoint.id",
    "credentialsId: 'ff083f76-7804-4ef1-80e4-fe975bb9141b'",
    '"credentialId": "B9mTcFSck2LzJO2S3ols63",',
    'keyword: "Befaehigung_P2"',
    '"bucket_key": "SalesResults-1.2"',
    "IceSSL.KeyFile=s_rsa1024_priv.pem",
    "secret_length = X25519.secret_length",
    "KeyPair = X25519.KeyPair",
    'LLM_SECRET_NAME = "NEXUS-GPT4-API-KEY"',
    "access_token_url='https://github.com/login/oauth/access_token',",
    "PuttyPassword=0",
    "GITHUB_API_KEY=\nDYNATRACE_API_KEY=",
    "snowflake.password=\njdbc.snowflake.url=",
    "JFROG_SECRET = $(cat /run/secrets/jfrog_secret) && x",
)  # fmt: skip
"""Lines that gitleaks, betterleaks and detect-secrets list as false positives."""
